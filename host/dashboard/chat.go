package dashboard

var chatRoutes = []route{}
