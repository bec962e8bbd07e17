// The sign-in form: by password, by password and second factor, or by passkey. Over a page whose session ended, it is a
// dialog, and what was typed on the page stays.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../contact/api.ts";
import { useHeadingFocus } from "./heading-focus.ts";
import { me, signIn, signInByPasskey, currentSlug } from "../contact/me.ts";
import { canUsePasskeys } from "../account/passkeys.ts";
import { listProviders, refusalOf, signInAt, type Provider } from "../providers/providers.ts";
import { query } from "./router.ts";
import { FormFailure, SecondFactorCode, Text, useAction, useAttempts } from "../ui/form.tsx";
import { Button } from "../ui/button.tsx";
import { Icon } from "../ui/icon.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Gate } from "../ui/page.tsx";
import { Failure } from "../ui/parts.tsx";

export function SignIn() {
  const isAgain = me.value !== undefined;
  // A dialog places the focus itself; "-sign-in" is the key of a page that no address has.
  useHeadingFocus(isAgain ? undefined : "-sign-in");
  if (isAgain)
    return (
      <Dialog title="Your session has ended. Sign in to go on." close={() => undefined}>
        <div class="ways">
          <SignInForm />
        </div>
      </Dialog>
    );
  const refusal = refusalOf(query.value);
  return (
    <Gate title="Sign in">
      <p class="quiet">
        to <bdi>{location.host}</bdi>
      </p>
      {refusal === undefined ? null : (
        <p class="is-bad" role="alert">
          {refusal}
        </p>
      )}
      <SignInForm />
    </Gate>
  );
}

type Credentials = { email: string; password: string };

function SignInForm() {
  const [credentials, setCredentials] = useState<Credentials>({ email: me.value?.email ?? "", password: "" });
  /** How the second factor can be proven, after the password was right. */
  const [methods, setMethods] = useState<readonly string[]>();
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
  const { first, further } = useProviders(email);
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
      <Passkey kind="primary" />
      <Providers all={first} />
      {canUsePasskeys || first.length > 0 ? <p class="or">or</p> : null}
      <form ref={form} onSubmit={submit}>
        <Text
          label="E-mail address"
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
        <div class="with-link">
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
          <a href="/reset/">Forgot it?</a>
        </div>
        <FormFailure error={error} shown={["email", "password"]} />
        <button class={canUsePasskeys ? "full" : "full primary"} disabled={isRunning}>
          Continue
        </button>
      </form>
      <Providers all={further} />
    </>
  );
}

const typedMs = 400;

/** `first`: the providers of everybody. `further`: those that the domain of the address adds, below the form, so that it does not move. */
function useProviders(email: string): Record<"first" | "further", readonly Provider[]> {
  const first = useListed("");
  // With its @, as an address without a name: each further letter of the name asks nothing new.
  const all = useListed(/@.*/.exec(email)?.[0]);
  return { first, further: all.filter(({ id }) => !first.some((each) => each.id === id)) };
}

/** The providers of everybody, and those that the domain adds: with its `@`, or empty. Undefined: no provider. */
function useListed(domain: string | undefined): readonly Provider[] {
  const [found, setFound] = useState<readonly Provider[]>([]);
  const organization = currentSlug.value;
  useEffect(() => {
    if (domain === undefined) return setFound([]);
    const ending = new AbortController();
    const read = () =>
      // Without an answer the page offers the other ways to sign in.
      listProviders({ organization, email: domain }, ending.signal).then(setFound, () => undefined);
    // Debounced: not for each letter.
    const timer = setTimeout(() => void read(), domain === "" ? 0 : typedMs);
    return () => {
      clearTimeout(timer);
      ending.abort();
    };
  }, [organization, domain]);
  return found;
}

/** The browser leaves for the page of a provider, and comes back signed in. */
function Providers({ all }: { all: readonly Provider[] }) {
  const { error, isRunning, attempt } = useAttempts();
  return (
    <>
      {all.map(({ id, name }) => (
        <button
          key={id}
          type="button"
          class="full"
          disabled={isRunning}
          onClick={() => attempt(() => signInAt(id))}
        >
          <Icon name="open" />
          <span class="cut">
            With <bdi>{name}</bdi>
          </span>
        </button>
      ))}
      <Failure error={error} />
    </>
  );
}

/** Signs in with a passkey alone: it is a second factor by itself. */
function Passkey({ kind }: { kind?: "primary" }) {
  const { error, isRunning, run } = useAction(signInByPasskey);
  if (!canUsePasskeys) return null;
  return (
    <>
      <button
        type="button"
        class={kind === undefined ? "full" : "full primary"}
        disabled={isRunning}
        onClick={run}
      >
        <Icon name="passkey" />
        With a passkey
      </button>
      <Failure error={error} />
    </>
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
        <button class="full primary" disabled={isRunning}>
          Sign in
        </button>
      </form>
      {methods.includes("passkey") ? <Passkey /> : null}
      <Button kind="ghost" onClick={back}>
        Back
      </Button>
    </>
  );
}
