// The dialogs of second factors: a new app or passkey, what is removed, and recovery codes, which are shown once.

import { maxCodeLength } from "../../api/values.ts";
import { useEffect, useRef, useState } from "preact/hooks";
import type { SentOf } from "../../api/endpoint.ts";
import { factorsApi, totpApi } from "../../api/factors/factors.ts";
import { maxPasskeyName, passkeysApi, type Passkey } from "../../api/factors/passkeys.ts";
import { call } from "../contact/api.ts";
import { factors } from "../contact/me.ts";
import { addPasskey } from "./passkeys.ts";
import { FormEnd } from "../ui/button.tsx";
import { FormFailure, Text, useAction } from "../ui/form.tsx";
import { tell } from "../ui/toast.tsx";
import { Confirm, Dialog, FormDialog } from "../ui/dialog.tsx";
import { Copy, Line } from "../ui/parts.tsx";
import { Qr } from "../ui/qr.tsx";
import { download } from "../ui/lists/tools.tsx";

export type Codes = readonly string[];
/** The open dialog; a passkey: the one that is to be removed. */
export type Asked = "app" | "passkey" | "codes" | "remove app" | Passkey | undefined;

type QuestionsProps = NewProps & { asked: Asked; setCodes(codes: Codes): void };

/** The dialog that was asked for. */
export function Questions({ asked, isFirst, changed, setCodes, close }: QuestionsProps) {
  const remove = (request: () => Promise<unknown>) => async () => {
    await request();
    await changed();
  };
  if (asked === "app") return <NewApp isFirst={isFirst} changed={changed} close={close} />;
  if (asked === "passkey") return <NewPasskey isFirst={isFirst} changed={changed} close={close} />;
  if (asked === "remove app")
    return (
      <Confirm
        title="Remove the authenticator app?"
        action="Remove the app"
        effect={
          <p>
            Its codes stop working. You can set up an app again.{" "}
            {factors.value?.is_required && factors.value.passkeys === 0
              ? " A second factor is required: its set-up page comes next."
              : ""}
          </p>
        }
        run={remove(() => call(totpApi.delete, {}))}
        close={close}
      />
    );
  if (asked === "codes")
    return (
      <Confirm
        title="Make new recovery codes?"
        action="Make new codes"
        effect="The codes that you have now stop working."
        run={async () => {
          const made = await call(factorsApi.createCodes, {});
          setCodes(made.recovery_codes);
        }}
        close={close}
      />
    );
  if (asked === undefined) return null;
  return (
    <Confirm
      title={`Remove the passkey ${asked.name}?`}
      action={`Remove ${asked.name}`}
      effect="It no longer signs you in. You can add it again."
      run={remove(() => call(passkeysApi.delete, { id: asked.id }))}
      close={close}
    />
  );
}

type NewProps = {
  /** The first second factor needs the password. */
  isFirst: boolean;
  /** After a change: closes the dialog, and shows the new recovery codes or reads the factors again. */
  changed(codes?: Codes): Promise<void>;
  close(): void;
};

type PresentProps = { password: string; set(text: string): void; errors: readonly string[] | undefined };

function PresentPassword({ password, set, errors }: PresentProps) {
  return (
    <Text
      label="Your password"
      help="Needed for your first app or passkey. Leave it empty if you have none."
      errors={errors}
      value={password}
      set={set}
      control={{ type: "password", autocomplete: "current-password" }}
    />
  );
}

type Secret = SentOf<typeof totpApi.create>;

function NewApp({ isFirst, changed, close }: NewProps) {
  const [password, setPassword] = useState("");
  const [secret, setSecret] = useState<Secret>();
  const begin = useAction(async () =>
    setSecret(await call(totpApi.create, {}, isFirst ? { current_password: password } : {})),
  );
  return (
    <Dialog title="Set up an authenticator app" close={close}>
      {secret === undefined ? (
        <form onSubmit={begin.submit}>
          {isFirst ? (
            <PresentPassword
              password={password}
              set={setPassword}
              errors={begin.error?.fields["current_password"]}
            />
          ) : (
            <p>The present app works until the new one has proven a code.</p>
          )}
          <FormFailure error={begin.error} shown={["current_password"]} />
          <FormEnd disabled={begin.isRunning} cancel={close}>
            Show the QR code
          </FormEnd>
        </form>
      ) : (
        <FirstCode secret={secret} changed={changed} close={close} />
      )}
    </Dialog>
  );
}

function FirstCode({ secret, changed, close }: { secret: Secret } & Pick<NewProps, "changed" | "close">) {
  const [code, setCode] = useState("");
  const { error, isRunning, submit } = useAction(async () => {
    const made = await call(totpApi.confirm, {}, { otp: code.trim() });
    await changed(made.recovery_codes);
    tell("The app is set up.");
  });
  const form = useRef<HTMLFormElement>(null);
  // The dialog was open before: `autofocus` counts only when it opens.
  useEffect(() => form.current?.querySelector("input")?.focus(), []);
  return (
    <form onSubmit={submit} ref={form}>
      <p>Scan this with the app, or type the secret there.</p>
      <Qr text={secret.otpauth_url} label="QR code of the secret" />
      <Line text={secret.secret} isText />
      <Text
        label="The code that the app shows now"
        errors={error?.fields["otp"]}
        value={code}
        set={setCode}
        control={{
          autocomplete: "one-time-code",
          inputmode: "numeric",
          maxlength: maxCodeLength,
          required: true,
        }}
      />
      <FormFailure error={error} shown={["otp"]} />
      <FormEnd disabled={isRunning} cancel={close}>
        Confirm
      </FormEnd>
    </form>
  );
}

function NewPasskey({ isFirst, changed, close }: NewProps) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const form = useAction(async () => {
    const made = await addPasskey(name, isFirst ? password : undefined);
    await changed(made.recovery_codes);
  });
  return (
    <FormDialog
      title="Add a passkey"
      close={close}
      action="Add the passkey"
      form={form}
      shown={["name", "current_password"]}
    >
      <Text
        label="Name"
        help="By which you know it again: the device, or the password manager."
        errors={form.error?.fields["name"]}
        value={name}
        set={setName}
        control={{ required: true, maxlength: maxPasskeyName, autocomplete: "off" }}
      />
      {isFirst ? (
        <PresentPassword
          password={password}
          set={setPassword}
          errors={form.error?.fields["current_password"]}
        />
      ) : null}
    </FormDialog>
  );
}

/** Only the button closes it, because the codes are not shown again. */
export function RecoveryCodes({ codes, close }: { codes: Codes; close(): void }) {
  const text = codes.join("\n");
  return (
    <Dialog title="Your recovery codes" close={() => undefined}>
      <p>They are shown only now. Keep them where you find them without this device.</p>
      <pre class="codes">{text}</pre>
      <div class="actions">
        <button
          type="button"
          autofocus
          onClick={() => download("recovery-codes.txt", `${text}\n`, "text/plain")}
        >
          Save as a file
        </button>
        <Copy text={text} />
        <button type="button" class="primary" onClick={close}>
          I have kept them
        </button>
      </div>
    </Dialog>
  );
}
