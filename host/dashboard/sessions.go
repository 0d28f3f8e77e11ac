package dashboard

var sessionRoutes = []route{}
