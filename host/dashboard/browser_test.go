package dashboard_test

import _ "github.com/chromedp/chromedp"
