// The sign-in form. Over a page whose session ended, it is a dialog, and what was typed on the page stays.

import { useState } from "preact/hooks";
import { ApiError } from "./api.ts";
import { html } from "./html.ts";
import { me, signIn } from "./me.ts";
import { refresh } from "./resource.ts";
import { Dialog, Failure, Field, valueOf } from "./ui/parts.ts";

export function SignIn({ isAgain = false }: { isAgain?: boolean }) {
  if (isAgain)
    return html`<${Dialog} title="Your session has ended. Sign in to go on." close=${() => undefined}>
      <${Form} isAgain=${true} />
    <//>`;
  return html`<main class="sign-in">
    <h1>Sign in</h1>
    <${Form} isAgain=${isAgain} />
  </main>`;
}

function Form({ isAgain }: { isAgain: boolean }) {
  const [email, setEmail] = useState(me.value?.email ?? "");
  const [password, setPassword] = useState("");
  const [error, fail] = useState<ApiError | undefined>(undefined);
  const [isRunning, runs] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    runs(true);
    fail(undefined);
    try {
      await signIn(email, password);
      if (isAgain) await refresh();
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      fail(failure);
      runs(false);
    }
  };
  return html`<form onSubmit=${submit}>
    <${Field} label="E-mail" errors=${error?.fields["email"]}>
      <input
        type="email"
        name="email"
        autocomplete="username"
        required
        value=${email}
        onInput=${(event: Event) => setEmail(valueOf(event))}
      />
    <//>
    <${Field} label="Password" errors=${error?.fields["password"]}>
      <input
        type="password"
        name="password"
        autocomplete="current-password"
        required
        value=${password}
        onInput=${(event: Event) => setPassword(valueOf(event))}
      />
    <//>
    ${error === undefined ? null : html`<${Failure} error=${error} />`}
    <button class="primary" disabled=${isRunning}>Sign in</button>
  </form>`;
}
