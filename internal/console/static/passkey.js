// Passkeys are the one thing here that needs a script. A form with data-start asks there for what to sign, lets the
// passkey sign it, and is then sent like any other form.
"use strict";

const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

function opened(options) {
  const o = { ...(options.publicKey || options) };
  o.challenge = bytes(o.challenge);
  if (o.user) o.user = { ...o.user, id: bytes(o.user.id) };
  for (const list of ["allowCredentials", "excludeCredentials"]) {
    if (o[list]) o[list] = o[list].map((c) => ({ ...c, id: bytes(c.id) }));
  }
  return { publicKey: o };
}

function answer(c) {
  const r = c.response;
  const out = { id: c.id, rawId: text(c.rawId), type: c.type, clientExtensionResults: c.getClientExtensionResults(), response: { clientDataJSON: text(r.clientDataJSON) } };
  if (c.authenticatorAttachment) out.authenticatorAttachment = c.authenticatorAttachment;
  if (r.attestationObject) {
    out.response.attestationObject = text(r.attestationObject);
    if (r.getTransports) out.response.transports = r.getTransports();
  } else {
    out.response.authenticatorData = text(r.authenticatorData);
    out.response.signature = text(r.signature);
    if (r.userHandle) out.response.userHandle = text(r.userHandle);
  }
  return JSON.stringify(out);
}

const troubles = {
  NotAllowedError: "The passkey was not used: it was cancelled, took too long, or is not one of yours.",
  InvalidStateError: "This passkey is enrolled already.",
  SecurityError: "Passkeys do not work at this address. Open the console by its name, over https or on localhost.",
};

async function sign(form, button) {
  const live = form.querySelector("[role=status]");
  const say = (words) => { if (live) live.textContent = words; };
  const buttons = form.querySelectorAll("button");
  buttons.forEach((b) => { b.disabled = true; });
  try {
    if (!window.PublicKeyCredential) throw new Error("This browser has no passkeys.");
    say("Waiting for your passkey …");
    const asked = new URLSearchParams(new FormData(form));
    if (form.dataset.challenge) asked.set("challenge", form.dataset.challenge);
    const got = await fetch(form.dataset.start, { method: "POST", body: asked, credentials: "same-origin", headers: { Accept: "application/json" } });
    const body = await got.json().catch(() => ({ error: "The answer could not be read. Load the page again." }));
    if (!got.ok) throw new Error(body.error || "That was refused.");
    const made = button.dataset.passkey === "create" ? await navigator.credentials.create(opened(body.options)) : await navigator.credentials.get(opened(body.options));
    form.elements.ticket.value = body.ticket;
    form.elements.response.value = answer(made);
    if (form.elements.by) form.elements.by.value = "passkey";
    if (button.name) { // submit() leaves out which button it was
      const pressed = document.createElement("input");
      pressed.type = "hidden";
      pressed.name = button.name;
      pressed.value = button.value;
      form.append(pressed);
    }
    say("Sending …");
    form.submit();
  } catch (e) {
    say((troubles[e.name] || e.message) + " Nothing was done.");
    buttons.forEach((b) => { b.disabled = false; });
  }
}

for (const form of document.querySelectorAll("form[data-start]")) {
  form.addEventListener("submit", (event) => {
    const button = event.submitter;
    if (!button || !button.dataset.passkey) return;
    event.preventDefault();
    sign(form, button);
  });
}
