// A fresh proof of the second factor. A request that needs one waits while a dialog asks for it, and is sent again.

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { ApiError, onStepUp, send } from "./api.ts";
import { html } from "./html.ts";
import { provePasskey } from "./passkeys.ts";
import { Dialog, Failure, Field, valueOf } from "./ui/parts.ts";

type Asked = { methods: readonly string[]; answer: (isProven: boolean) => void };

const asked = signal<Asked | undefined>(undefined);
let running: Promise<boolean> | undefined;

/** Requests that wait at the same time share one dialog. */
export function startStepUp(): void {
  onStepUp((methods) => {
    running ??= new Promise<boolean>((resolve) => {
      asked.value = { methods, answer: resolve };
    }).finally(() => {
      running = undefined;
      asked.value = undefined;
    });
    return running;
  });
}

export function StepUp() {
  const [code, setCode] = useState("");
  const [error, fail] = useState<ApiError | undefined>(undefined);
  const [isRunning, runs] = useState(false);
  const present = asked.value;
  if (present === undefined) return null;
  const { methods, answer } = present;
  const finish = (isProven: boolean) => {
    setCode("");
    fail(undefined);
    answer(isProven);
  };
  const prove = async (work: () => Promise<unknown>) => {
    runs(true);
    fail(undefined);
    try {
      await work();
      finish(true);
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      fail(failure);
    } finally {
      runs(false);
    }
  };
  const submit = (event: Event) => {
    event.preventDefault();
    void prove(() => send("POST", "/api/user/step_up/", { otp: code.trim() }));
  };
  return html`<${Dialog} title="Confirm that it is you" close=${() => finish(false)}>
    <p>This change needs your second factor. It counts for 10 minutes.</p>
    ${
      methods.includes("passkey")
        ? html`<p>
            <button
              type="button"
              disabled=${isRunning}
              onClick=${() => void prove(() => provePasskey("/api/user/step_up/passkey/"))}
            >
              Use a passkey
            </button>
          </p>`
        : null
    }
    <form onSubmit=${submit}>
      <${Field}
        label=${methods.includes("totp") ? "Code of your authenticator app" : "Recovery code"}
        help=${methods.includes("totp") ? "Or a recovery code." : ""}
        errors=${error?.fields["otp"]}
      >
        <input
          name="otp"
          autocomplete="one-time-code"
          maxlength="64"
          required
          value=${code}
          onInput=${(event: Event) => setCode(valueOf(event))}
        />
      <//>
      ${error === undefined ? null : html`<${Failure} error=${error} />`}
      <div class="actions">
        <button class="primary" disabled=${isRunning}>Go on</button>
        <button type="button" onClick=${() => finish(false)}>Cancel</button>
      </div>
    </form>
  <//>`;
}
