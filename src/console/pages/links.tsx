// The pages before anybody is signed in: those that links with a secret open (the first user, an invitation, a new
// password), and the sign-in of the API's documentation. Browsers do not send the fragment, so no log has the secret.

import { docsApi } from "../../api/pages.ts";
import { maxCodeLength } from "../../api/values.ts";
import type { ComponentChildren, VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import {
  joiningApi,
  maxPasswordLength,
  minPasswordLength,
  passwordResetApi,
  type Joined,
} from "../../api/users.ts";
import { call } from "../contact/api.ts";
import { pathOf, root } from "../frame/router.ts";
import { Check, FormFailure, Text, useAttempts } from "../ui/form.tsx";
import { Gate } from "../ui/page.tsx";
import { Failure } from "../ui/parts.tsx";

type Credentials = { secret: string; email: string; password: string; otp: string };
/** What the page says when it is done. */
type Done = { title: ComponentChildren; text: ComponentChildren };
type LinkPage = {
  title: string;
  text: string;
  action: string;
  fields: readonly (keyof typeof controls)[];
  /** A link without its secret was not copied completely. */
  needsSecret?: boolean;
  /** The other way: as the signed-in user of this browser, without a password. */
  asSignedIn?: { text: string; action: string; send(secret: string): Promise<Done> };
  /** Reads the purpose of the link. Throws an ApiError if it is no longer valid. */
  find?(secret: string): Promise<VNode>;
  send(typed: Credentials): Promise<Done>;
};

const controls = {
  email: ["E-mail", { type: "email", autocomplete: "username", required: true }],
  password: ["Password", { type: "password", autocomplete: "current-password", required: true }],
  newPassword: [
    `Password, of at least ${minPasswordLength} characters`,
    {
      type: "password",
      autocomplete: "new-password",
      minlength: minPasswordLength,
      maxlength: maxPasswordLength,
      required: true,
    },
  ],
  otp: [
    "Code of your second factor, if you have one",
    { autocomplete: "one-time-code", maxlength: maxCodeLength },
  ],
} as const;

const toConsole = (path: string, words: string) => (
  <a class="button primary full" href={path}>
    {words}
  </a>
);

const setup: LinkPage = {
  title: "First user",
  text: "This control plane has no user yet. Yours will be staff: it makes organizations and names their owners.",
  action: "Create the user",
  fields: ["email", "newPassword"],
  needsSecret: true,
  async send({ secret, email, password }) {
    const made = await call(joiningApi.setup, {}, { secret, email, password });
    return {
      title: (
        <>
          Welcome, <bdi>{made.email}</bdi>
        </>
      ),
      text: (
        <>
          <p>Sign in with the password that you chose. The first organization is made there.</p>
          {toConsole(root, "Open the console")}
        </>
      ),
    };
  },
};

const welcome = ({ email, org_slug }: Joined, text: string): Done => ({
  title: (
    <>
      Welcome to <bdi>{org_slug}</bdi>, <bdi>{email}</bdi>
    </>
  ),
  text: (
    <>
      <p>{text}</p>
      {toConsole(pathOf(org_slug), "Open the console")}
    </>
  ),
});

const join: LinkPage = {
  title: "You are invited",
  text: "Choose a password. If you are a user of this control plane already, enter your present password.",
  action: "Join",
  fields: ["newPassword"],
  needsSecret: true,
  async find(secret) {
    const { email, org_slug } = await call(joiningApi.find, {}, { secret });
    return (
      <p>
        <bdi>{email}</bdi> is invited to the organization <bdi>{org_slug}</bdi>.
      </p>
    );
  },
  async send({ secret, password }) {
    const joined = await call(joiningApi.accept, {}, { secret, password });
    return welcome(joined, "You can sign in with this address and your password.");
  },
  asSignedIn: {
    text: "Or, if you sign in by a provider, with a passkey or with a second factor: sign in in this browser first, then open this link again.",
    action: "Join as the user who is signed in",
    send: async (secret) =>
      welcome(await call(joiningApi.acceptAsUser, {}, { secret }), "You sign in as before."),
  },
};

const reset: LinkPage = {
  title: "Choose a new password",
  text: "It ends all sessions of your user. Second factors stay.",
  action: "Set the password",
  fields: ["newPassword"],
  needsSecret: true,
  async send({ secret, password }) {
    await call(passwordResetApi.confirm, {}, { secret, password });
    return {
      title: "The new password is set",
      text: (
        <>
          <p>All sessions have ended. Sign in again where you need it.</p>
          {toConsole(root, "Sign in")}
        </>
      ),
    };
  },
};

const forgotten: LinkPage = {
  title: "Forgot your password?",
  text: "You get a link by e-mail, with which you choose a new one.",
  action: "Send the link",
  fields: ["email"],
  async send({ email }) {
    await call(passwordResetApi.request, {}, { email });
    return {
      title: "Look into your mailbox",
      text: (
        <>
          <p>
            If <bdi>{email}</bdi> belongs to a user, a link is on its way. It works once.
          </p>
          <p>
            <a href={root}>Back to the sign-in</a>
          </p>
        </>
      ),
    };
  },
};

const documentation: LinkPage = {
  title: "Sign in",
  text: "Only staff may read the documentation of this control plane.",
  action: "Sign in",
  fields: ["email", "password", "otp"],
  async send({ email, password, otp }) {
    await call(docsApi.signIn, {}, { email, password, ...(otp === "" ? {} : { otp }) });
    location.reload();
    return { title: "Signed in", text: null };
  },
};

function pageOf(secret: string): LinkPage {
  switch (location.pathname) {
    case "/setup/":
      return setup;
    case "/join/":
      return join;
    case "/reset/":
      return secret === "" ? forgotten : reset;
    default:
      return documentation;
  }
}

export function Links() {
  const [secret] = useState(location.hash.slice(1));
  const page = pageOf(secret);
  const [done, setDone] = useState<Done>();
  // The password is typed once: hidden, a mistake in it would be found at the sign-in only.
  const [isShown, setShown] = useState(false);
  const [typed, setTyped] = useState({ email: "", password: "", otp: "" });
  const { error, isRunning, attempt } = useAttempts();
  const [found, setFound] = useState<VNode>();
  const finding = useAttempts();
  const finishWith = (work: () => Promise<Done>) =>
    attempt(async () => {
      setDone(await work());
      // The link works once.
      if (page.needsSecret === true) history.replaceState(null, "", location.pathname);
    });
  const submit = (event: Event) => {
    event.preventDefault();
    void finishWith(() => page.send({ ...typed, secret }));
  };
  const { asSignedIn } = page;
  // Another link was opened in this tab.
  useEffect(() => addEventListener("hashchange", () => location.reload()), []);
  useEffect(() => {
    document.title = page.title;
    document.querySelector<HTMLInputElement>("input")?.focus();
    if (page.find !== undefined && secret !== "")
      void finding.attempt(async () => setFound(await page.find?.(secret)));
  }, [page]);
  if (done !== undefined) return <Gate title={done.title}>{done.text}</Gate>;
  if (page.needsSecret === true && secret === "")
    return (
      <Gate title={page.title}>
        <p>The link is not whole: it was used, or its part behind # is missing. Copy it whole.</p>
        <p>
          <a href={root}>To the sign-in</a>
        </p>
      </Gate>
    );
  if (finding.error !== undefined)
    return (
      <Gate title={page.title}>
        <Failure error={finding.error} />
      </Gate>
    );
  return (
    <Gate title={page.title}>
      {found}
      <p class="quiet">{page.text}</p>
      <form onSubmit={submit}>
        {page.fields.map((field) => {
          const key = field === "newPassword" ? "password" : field;
          const [label, control] = controls[field];
          return (
            <Text
              key={key}
              label={label}
              errors={error?.fields[key]}
              value={typed[key]}
              set={(text: string) => setTyped({ ...typed, [key]: text })}
              control={{
                ...control,
                ...(field === "newPassword" && isShown ? { type: "text" } : {}),
                id: key,
                name: key,
              }}
            />
          );
        })}
        {page.fields.includes("newPassword") ? (
          <Check label="Show the password" checked={isShown} set={setShown} />
        ) : null}
        <FormFailure error={error} shown={["email", "password", "otp"]} />
        <button class="primary full" disabled={isRunning}>
          {page.action}
        </button>
      </form>
      {asSignedIn === undefined ? null : (
        <>
          <p class="or">or</p>
          <p class="quiet">{asSignedIn.text}</p>
          <button
            type="button"
            class="full"
            disabled={isRunning}
            onClick={() => finishWith(() => asSignedIn.send(secret))}
          >
            {asSignedIn.action}
          </button>
        </>
      )}
    </Gate>
  );
}
