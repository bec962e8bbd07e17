// The user's second factors: authenticator app, passkeys, and recovery codes, which are shown once.

import { maxCodeLength } from "../../api/values.ts";
import { useEffect, useRef, useState } from "preact/hooks";
import { apiPath, type SentOf } from "../../api/endpoint.ts";
import { factorsApi, totpApi } from "../../api/factors/factors.ts";
import { maxPasskeyName, passkeysApi, type Passkey } from "../../api/factors/passkeys.ts";
import { call } from "../contact/api.ts";
import { factors, readMe } from "../contact/me.ts";
import { addPasskey, canUsePasskeys, isPasskeyHost } from "./passkeys.ts";
import { refresh, useResource } from "../contact/resource.ts";
import { Button, FormEnd } from "../ui/button.tsx";
import { FormFailure, Text, useAction } from "../ui/form.tsx";
import { tell } from "../ui/toast.tsx";
import { Confirm, Dialog, FormDialog } from "../ui/dialog.tsx";
import { Copy, Failure, Line, Loading, State, When } from "../ui/parts.tsx";
import { Panel } from "../ui/page.tsx";
import { FactRow } from "../ui/setting-fields.tsx";
import { Qr } from "../ui/qr.tsx";
import { download } from "../ui/lists/tools.tsx";

type Codes = readonly string[];
/** The open dialog; a passkey: the one that is to be removed. */
type Asked = "app" | "passkey" | "codes" | "remove app" | Passkey | undefined;

const passkeysPath = apiPath(passkeysApi.list, {});

export function SecondFactors() {
  const [asked, setAsked] = useState<Asked>(undefined);
  const [codes, setCodes] = useState<Codes>();
  const present = factors.value;
  if (present === undefined) return null;
  const close = () => setAsked(undefined);
  /**
   * After a factor was added or removed. With new recovery codes, the factors are read only once the user has kept them: the page of
   * a required factor would close, and the codes with it.
   */
  const changed = async (fresh: Codes = []) => {
    if (fresh.length > 0) setCodes(fresh);
    close();
    await Promise.all([fresh.length > 0 ? undefined : readMe(), refresh(passkeysPath)]);
  };
  const isFirst = !present.totp && present.passkeys === 0;
  return (
    <>
      <Panel id="second-factor" title="Second factor" isSettings={true}>
        <FactRow
          title="Authenticator app"
          help={<>Beside the password, an app or a passkey proves that it is you.</>}
        >
          <span class="group">
            <State name={present.totp ? "online" : "away"} word={present.totp ? "set up" : "not set up"} />
            <Button isSmall={true} kind={isFirst ? "tint" : undefined} onClick={() => setAsked("app")}>
              {present.totp ? "Move to another phone" : "Set up an app"}
            </Button>
            {present.totp ? (
              <Button isSmall={true} kind="danger" onClick={() => setAsked("remove app")}>
                Remove the app
              </Button>
            ) : null}
          </span>
        </FactRow>
        {isFirst ? null : (
          <FactRow
            title="Recovery codes"
            help={
              <>
                {present.recovery_codes_left} of them are left. Each signs you in once, when the phone or the
                passkey is lost.
              </>
            }
          >
            <Button isSmall={true} onClick={() => setAsked("codes")}>
              Make new codes
            </Button>
          </FactRow>
        )}
      </Panel>
      <Passkeys ask={setAsked} />
      <Questions {...{ asked, isFirst, changed, setCodes, close }} />
      {codes === undefined ? null : (
        <RecoveryCodes
          codes={codes}
          close={() => {
            setCodes(undefined);
            void readMe();
          }}
        />
      )}
    </>
  );
}

type QuestionsProps = NewProps & { asked: Asked; setCodes(codes: Codes): void };

/** The dialog that was asked for. */
function Questions({ asked, isFirst, changed, setCodes, close }: QuestionsProps) {
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

function Passkeys({ ask }: { ask(asked: Asked): void }) {
  const { data, error } = useResource(passkeysPath);
  return (
    <Panel
      id="passkeys"
      title="Passkeys"
      isSettings={true}
      actions={
        canUsePasskeys ? (
          <Button isSmall={true} onClick={() => ask("passkey")}>
            Add a passkey
          </Button>
        ) : null
      }
    >
      <Failure error={error} />
      {data === undefined ? (
        <div class="in">
          <Loading rows={1} />
        </div>
      ) : null}
      {data?.length === 0 ? (
        <FactRow
          title="None"
          help="A passkey is a key in your device or password manager; it signs you in without a password."
        />
      ) : null}
      {data?.map((passkey) => (
        <FactRow
          key={passkey.id}
          title={<bdi>{passkey.name}</bdi>}
          help={
            passkey.is_usable ? (
              <>
                used <When at={passkey.last_used_at} />
              </>
            ) : (
              "made for another name of this control plane, so it cannot be used"
            )
          }
        >
          <Button isSmall={true} label={`Remove ${passkey.name}`} onClick={() => ask(passkey)}>
            Remove
          </Button>
        </FactRow>
      ))}
      {canUsePasskeys ? null : <p class="in quiet">{whyNoPasskeys()}</p>}
    </Panel>
  );
}

function whyNoPasskeys(): string {
  if (!isPasskeyHost)
    return "Passkeys need a host name. Open the console by the name of the control plane, or start it with one: --public-url https://vpn.example.org";
  if (!isSecureContext) return "This browser has no passkeys on this page: it needs HTTPS.";
  return "This browser cannot use passkeys here. Use a newer one: Chrome 129, Firefox 119, Safari 18.4.";
}

type NewProps = {
  /** The first second factor needs the password. */
  isFirst: boolean;
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
function RecoveryCodes({ codes, close }: { codes: Codes; close(): void }) {
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
