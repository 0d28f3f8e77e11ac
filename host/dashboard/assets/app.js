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

	// trouble says, where a part of the page was to come, why it did not.
	function trouble(e, text) {
		const note = document.createElement("p");
		note.className = "wrong trouble";
		note.setAttribute("role", "alert");
		note.textContent = text;
		e.detail.target.prepend(note);
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
		const form = document.getElementById("say");
		if (form) converse(form);
		document.body.addEventListener("htmx:beforeRequest", (e) => e.detail.target.querySelector(":scope > .trouble")?.remove());
		document.body.addEventListener("htmx:responseError", (e) => trouble(e, "That did not work: " + (e.detail.xhr.responseText || "error").slice(0, 200)));
		document.body.addEventListener("htmx:sendError", (e) => trouble(e, "The server cannot be reached."));
	});

	// converse sends what is said to the control API, shows the answer as it comes,
	// and then takes what was stored from the server, as the page would have it.
	function converse(form) {
		const at = (id) => document.getElementById(id);
		const text = at("text"), send = at("send"), cancel = at("cancel"), live = at("live"), saying = at("saying"), doing = at("doing"), talk = at("talk"), wrong = at("chat-wrong");
		at("text-hint").hidden = false;
		text.addEventListener("keydown", (e) => {
			if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) { e.preventDefault(); form.requestSubmit(); }
		});
		let going = null;
		// What was sent and is not known to be stored, with the key that lets the same
		// words be sent again and stored once.
		let open = null;
		cancel.addEventListener("click", () => { if (going) going.abort(); });
		form.addEventListener("submit", async (e) => {
			e.preventDefault();
			const said = text.value;
			if (going || !said.trim()) return;
			going = new AbortController();
			if (!open || open.said !== said) open = { said, key: Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("") };
			wrong.hidden = true;
			wrong.textContent = "";
			const own = document.createElement("div");
			own.className = "line user";
			own.innerHTML = '<p class="item-head"><strong class="who">user</strong></p><pre class="said"></pre>';
			own.lastChild.textContent = said;
			live.before(own);
			saying.textContent = "";
			doing.textContent = "is thinking…";
			live.hidden = cancel.hidden = false;
			send.disabled = true;
			text.value = "";
			live.scrollIntoView({ block: "nearest" });
			let failure = "";
			try {
				failure = await stream(form, open, going.signal);
			} catch (err) {
				failure = err.name === "AbortError" ? "Stopped: there is no answer. What you said is kept." : "The server cannot be reached.";
			}
			let kept = false;
			try {
				kept = await stored(form);
			} catch { failure = failure || "What was stored cannot be shown: load the page again."; }
			own.remove();
			live.hidden = cancel.hidden = true;
			send.disabled = false;
			going = null;
			if (kept || !failure) open = null;
			if (failure) {
				wrong.textContent = failure;
				if (failure === loggedOut) wrong.append(" ", login());
				wrong.hidden = false;
				if (!kept && !text.value) text.value = said;
			}
			text.focus();
		});

		// login leads to the login beside this page: to leave it would lose what was written.
		function login() {
			const link = document.createElement("a");
			link.href = "/login";
			link.target = "_blank";
			link.textContent = "Log in in another tab, then send it again.";
			return link;
		}

		// stream asks and shows events until the answer is whole. It returns why there is
		// none, "" if there is.
		async function stream(form, { said, key }, signal) {
			const body = { text: said };
			if (form.dataset.session) Object.assign(body, { session: form.dataset.session, event_key: key });
			else if (at("agent")) body.agent = at("agent").value;
			const answer = await fetch(form.dataset.stream, {
				method: "POST", signal, headers: { "Content-Type": "application/json", "Accept": "text/event-stream" }, body: JSON.stringify(body),
			});
			if (answer.status === 401) return loggedOut;
			if (!answer.ok) return sentence((await answer.json().catch(() => ({}))).detail);
			let failure = "The answer was broken off.";
			await events(answer.body, (name, data) => {
				switch (name) {
				case "session":
					settle(form, data.session);
					break;
				case "text":
					doing.textContent = "";
					saying.append(data.text);
					break;
				case "restart":
					saying.textContent = "";
					break;
				case "tool":
					doing.textContent = "uses " + data.name + "…";
					say("The assistant uses " + data.name);
					break;
				case "answer":
					failure = "";
					break;
				case "error":
					failure = sentence(data.detail);
					break;
				}
			});
			return failure;
		}

		// settle makes the page one of that session.
		function settle(form, session) {
			if (form.dataset.session) return;
			form.dataset.session = session;
			form.action = form.dataset.here + "/" + session;
			history.replaceState(null, "", form.action);
			if (at("agent")) at("agent").disabled = true;
		}

		// stored adds what the server has stored since the last message of the page, and
		// returns whether that was anything.
		async function stored(form) {
			if (!form.dataset.session) return false;
			let lines, any = false;
			do {
				const answer = await fetch(form.dataset.here + "/" + form.dataset.session + "/since?after=" + talk.dataset.last, { headers: { "HX-Request": "true" } });
				if (!answer.ok) throw new Error(answer.status);
				const part = document.createElement("template");
				part.innerHTML = await answer.text();
				const fill = part.content.querySelector("[data-fill]");
				if (fill) at("fill").replaceChildren(...fill.childNodes);
				lines = part.content.querySelector("[data-last]");
				if (lines) {
					any = true;
					talk.dataset.last = lines.dataset.last;
					talk.append(lines);
					lines.lastElementChild.scrollIntoView({ block: "nearest" });
				}
			} while (lines && "more" in lines.dataset);
			return any;
		}
	}

	const loggedOut = "You are logged out.";

	function sentence(detail) { return detail ? detail[0].toUpperCase() + detail.slice(1) + "." : "That did not work."; }

	// events reads server-sent events, each with one line of JSON.
	async function events(body, tell) {
		const reader = body.pipeThrough(new TextDecoderStream()).getReader();
		let rest = "";
		for (;;) {
			const { value, done } = await reader.read();
			if (done) return;
			rest += value;
			const whole = rest.split("\n\n");
			rest = whole.pop();
			for (const event of whole) {
				const field = (name) => (event.split("\n").find((line) => line.startsWith(name + ": ")) || "").slice(name.length + 2);
				if (field("event")) tell(field("event"), JSON.parse(field("data")));
			}
		}
	}
})();
