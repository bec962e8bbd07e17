// The sign-in form: by password, by password and second factor, or by passkey. Over a page whose session ended, it is a
// dialog, and what was typed on the page stays.

import { useEffect, useRef, useState } from "preact/hooks";
import { brand } from "../brand.ts";
import { ApiError } from "./api.ts";
import { useHeadingFocus } from "./heading-focus.ts";
import { me, signIn, signInByPasskey, slug } from "./me.ts";
import { canUsePasskeys } from "./passkeys.ts";
import { listProviders, refusalOf, signInAt, type Provider } from "./providers.ts";
import { query } from "./router.ts";
import { FormFailure, SecondFactorCode, Text, useAction, useAttempts } from "./ui/form.tsx";
import { Icon, Logo } from "./ui/icon.tsx";
import { Dialog } from "./ui/dialog.tsx";
import { Failure } from "./ui/parts.tsx";

export function SignIn() {
  const isAgain = me.value !== undefined;
  useHeadingFocus(isAgain ? undefined : "-sign-in");
  if (isAgain)
    return (
      <Dialog title="Your session has ended. Sign in to go on." close={() => undefined}>
        <Form />
      </Dialog>
    );
  const refusal = refusalOf(query.value);
  return (
    <main class="gate">
      <p class="brand">
        <Logo />
        {brand.title}
      </p>
      <h1>Sign in</h1>
      {refusal === undefined ? null : <p role="alert">{refusal}</p>}
      <Form />
    </main>
  );
}

type Credentials = { email: string; password: string };

function Form() {
  const [credentials, setCredentials] = useState<Credentials>({ email: me.value?.email ?? "", password: "" });
  /** How the second factor can be proven, after the password was right. */
  const [methods, setMethods] = useState<readonly string[] | undefined>(undefined);
  if (methods === undefined) return <PasswordForm {...{ credentials, setCredentials, setMethods }} />;
  return <FactorForm {...{ credentials, methods }} back={() => setMethods(undefined)} />;
}

type PasswordProps = {
  credentials: Credentials;
  setCredentials(credentials: Credentials): void;
  setMethods(methods: readonly string[]): void;
};

function PasswordForm({ credentials, setCredentials, setMethods }: PasswordProps) {
  const { email, password } = credentials;
  const form = useRef<HTMLFormElement>(null);
  // A dialog opens with the field that has `autofocus`; a page needs a hand.
  useEffect(() => form.current?.querySelector<HTMLInputElement>("[autofocus]")?.focus(), []);
  const [isKnown] = useState(email !== "");
  const { error, isRunning, submit } = useAction(async () => {
    try {
      await signIn(email, password);
    } catch (failure) {
      if (!(failure instanceof ApiError) || failure.code !== "second_factor_required") throw failure;
      setMethods(failure.methods);
    }
  });
  return (
    <>
      <Passkey />
      <form ref={form} onSubmit={submit}>
        <Text
          label="E-mail"
          errors={error?.fields["email"]}
          value={email}
          set={(text: string) => setCredentials({ email: text, password })}
          control={{
            type: "email",
            name: "email",
            autocomplete: "username",
            required: true,
            autofocus: !isKnown,
          }}
        />
        <Text
          label="Password"
          errors={error?.fields["password"]}
          value={password}
          set={(text: string) => setCredentials({ email, password: text })}
          control={{
            type: "password",
            name: "password",
            autocomplete: "current-password",
            required: true,
            autofocus: isKnown,
          }}
        />
        <FormFailure error={error} shown={["email", "password"]} />
        <button class="primary full" disabled={isRunning}>
          Sign in
        </button>
      </form>
      <Providers email={email} />
      <p>
        <a href="/reset/">Forgot your password?</a>
      </p>
    </>
  );
}

const typedMs = 400;

/** The browser leaves for the page of a provider, and comes back signed in. */
function Providers({ email }: { email: string }) {
  const [all, setAll] = useState<readonly Provider[]>([]);
  const { error, isRunning, attempt } = useAttempts();
  const organization = slug.value;
  const domain = email.includes("@") ? email.slice(email.indexOf("@")) : "";
  useEffect(() => {
    const ending = new AbortController();
    const read = () =>
      // Without an answer the page offers the other ways to sign in.
      listProviders({ organization, email: domain }, ending.signal).then(setAll, () => undefined);
    // Debounced: not for each letter.
    const timer = setTimeout(() => void read(), domain === "" ? 0 : typedMs);
    return () => {
      clearTimeout(timer);
      ending.abort();
    };
  }, [organization, domain]);
  return (
    <>
      {all.map(({ id, name }) => (
        <div key={id} class="other-way">
          <button type="button" class="full" disabled={isRunning} onClick={() => attempt(() => signInAt(id))}>
            Sign in with <bdi>{name}</bdi>
          </button>
        </div>
      ))}
      {error === undefined ? null : <Failure error={error} />}
    </>
  );
}

/** Signs in with a passkey alone: it is a second factor by itself. */
function Passkey() {
  const { error, isRunning, run } = useAction(signInByPasskey);
  if (!canUsePasskeys) return null;
  return (
    <div class="other-way">
      <button type="button" class="full" disabled={isRunning} onClick={run}>
        <Icon name="passkey" />
        Sign in with a passkey
      </button>
      {error === undefined ? null : <Failure error={error} />}
    </div>
  );
}

type FactorProps = {
  credentials: Credentials;
  methods: readonly string[];
  back(): void;
};

function FactorForm({ credentials, methods, back }: FactorProps) {
  const [code, setCode] = useState("");
  const place = useRef<HTMLInputElement>(null);
  useEffect(() => place.current?.focus(), []);
  const { error, isRunning, submit } = useAction(() =>
    signIn(credentials.email, credentials.password, code.trim()),
  );
  const hasApp = methods.includes("totp");
  return (
    <>
      <form onSubmit={submit}>
        <p>The password is right. Now prove your second factor.</p>
        <SecondFactorCode
          label={hasApp ? "Code of your authenticator app" : "Recovery code"}
          help={hasApp ? "Without the app, type one of your recovery codes." : "A recovery code works once."}
          errors={error?.fields["otp"]}
          value={code}
          set={setCode}
          control={{ ref: place }}
        />
        <FormFailure error={error} shown={["otp"]} />
        <div class="actions">
          <button class="primary" disabled={isRunning}>
            Sign in
          </button>
          <button type="button" onClick={back}>
            Back
          </button>
        </div>
      </form>
      {methods.includes("passkey") ? <Passkey /> : null}
    </>
  );
}
