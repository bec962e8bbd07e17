// A fresh proof of the second factor. A request that needs one waits while a dialog asks for it, and is sent again.

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { factorsApi, freshMinutes } from "../../api/factors/factors.ts";
import { passkeyProofsApi } from "../../api/factors/passkeys.ts";
import { call, onStepUp } from "../contact/api.ts";
import { readMe } from "../contact/me.ts";
import { provePasskey } from "../account/passkeys.ts";
import { FormFailure, SecondFactorCode, useAttempts } from "../ui/form.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { FormEnd } from "../ui/button.tsx";

type Asked = { methods: readonly string[]; answer: (isProven: boolean) => void };

const asked = signal<Asked>();
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

/** Asks for a fresh second factor while a request waits for it. */
export function StepUp() {
  const present = asked.value;
  return present === undefined ? null : <Proof {...present} />;
}

function Proof({ methods, answer }: Asked) {
  const [code, setCode] = useState("");
  const { error, isRunning, attempt } = useAttempts();
  const prove = async (work: () => Promise<unknown>) => {
    await work();
    answer(true);
    // Organizations that were closed without the proof are open now.
    void readMe().catch(() => undefined);
  };
  const byPasskey = () =>
    attempt(() => prove(() => provePasskey(passkeyProofsApi.proveOptions, passkeyProofsApi.prove)));
  const submit = (event: Event) => {
    event.preventDefault();
    void attempt(() => prove(() => call(factorsApi.prove, {}, { otp: code.trim() })));
  };
  const cancel = () => answer(false);
  return (
    <Dialog title="Confirm that it is you" close={cancel}>
      <p>This change needs your second factor. It counts for {freshMinutes} minutes.</p>
      {methods.includes("passkey") ? (
        <p>
          <button type="button" disabled={isRunning} onClick={byPasskey}>
            Use a passkey
          </button>
        </p>
      ) : null}
      <form onSubmit={submit}>
        <SecondFactorCode
          label={methods.includes("totp") ? "Code of your authenticator app" : "Recovery code"}
          help={methods.includes("totp") ? "Or a recovery code." : ""}
          errors={error?.fields["otp"]}
          value={code}
          set={setCode}
        />
        <FormFailure error={error} />
        <FormEnd disabled={isRunning} cancel={cancel}>
          Go on
        </FormEnd>
      </form>
    </Dialog>
  );
}
