"use strict";
// The theme, before anything is drawn; the rest when the page is there.
(function () {
	const root = document.documentElement;
	const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
	const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
	const theme = stored();
	if (theme === "dark" || theme === "light") root.dataset.theme = theme;

	// say has a screen reader read something out.
	function say(text) {
		const at = document.getElementById("said");
		if (at) at.textContent = text;
	}

	document.addEventListener("DOMContentLoaded", () => {
		const toggle = document.getElementById("theme");
		const name = () => { toggle.textContent = dark() ? "Light theme" : "Dark theme"; };
		if (toggle) {
			name();
			toggle.hidden = false;
			toggle.addEventListener("click", () => {
				root.dataset.theme = dark() ? "light" : "dark";
				try { localStorage.setItem("theme", root.dataset.theme); } catch { /* for this page, then */ }
				name();
			});
		}
		// A notice is said once, and not again when the page is loaded again.
		const here = new URL(location.href);
		if (here.searchParams.has("notice")) {
			here.searchParams.delete("notice");
			history.replaceState(null, "", here);
		}
		document.body.addEventListener("htmx:responseError", (e) => say("That did not work: " + (e.detail.xhr.responseText || "error").slice(0, 200)));
		document.body.addEventListener("htmx:sendError", () => say("The server cannot be reached."));
	});
})();
