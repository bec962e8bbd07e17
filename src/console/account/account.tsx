// The signed-in user's account: password, second factors, and the browsers and command lines that are signed in.

import { useState } from "preact/hooks";
import { apiPath } from "../../api/endpoint.ts";
import { ownSessionsApi } from "../../api/sessions.ts";
import { minPasswordLength, ownUserApi } from "../../api/users.ts";
import { call, isSignedOut } from "../contact/api.ts";
import { isAdmin, isFactorMissing, me, shownOrganization } from "../contact/me.ts";
import { pathOf } from "../frame/router.ts";
import { chooseDateLanguage, dateLanguage, dateLanguages, exact, now } from "../words/times.ts";
import { Choice, FormFailure, Text, useAction } from "../ui/form.tsx";
import { Page, Panel } from "../ui/page.tsx";
import { Sections } from "../ui/sections.tsx";
import { SettingRow } from "../ui/setting-fields.tsx";
import { Identities } from "./identities.tsx";
import { SecondFactors } from "./second-factors.tsx";
import { SessionList, type SessionsPath } from "./session-list.tsx";

/** Without Identities, which shows nothing where there is no provider. */
const sections = ["Second factor", "Passkeys", "Password", "Sessions", "Dates"];

/** While a required second factor is missing, this page stands in place of every other. */
export function Account() {
  if (isFactorMissing.value)
    return (
      <Page title="Set up a second factor">
        <p>
          An organization of yours, or this control plane, requires a second factor. Add an authenticator app
          or a passkey; then you can go on.
        </p>
        <SecondFactors />
      </Page>
    );
  return (
    <Page
      title="Account"
      fact={
        <>
          You are signed in as <bdi>{me.value?.email}</bdi>, user {me.value?.id}.
        </>
      }
    >
      <Sections all={sections}>
        <p class="only-phone quiet">
          You are signed in as <bdi>{me.value?.email}</bdi>, user {me.value?.id}.
        </p>
        <SecondFactors />
        <Password />
        <Identities />
        <Sessions />
        <Dates />
      </Sections>
    </Page>
  );
}

const Dates = () => (
  <Panel id="dates" title="Dates" isSettings={true}>
    <Choice
      frame={SettingRow}
      label="Write dates"
      help={`In this browser. Now is ${exact(now.value)}.`}
      value={dateLanguage.value}
      set={chooseDateLanguage}
      choices={dateLanguages}
    />
  </Panel>
);

function Password() {
  const [present, setPresent] = useState("");
  const [next, setNext] = useState("");
  const { error, isRunning, submit } = useAction(async () => {
    await call(ownUserApi.changePassword, {}, { current_password: present, new_password: next });
    setPresent("");
    setNext("");
    isSignedOut.value = true;
  });
  return (
    <Panel id="password" title="Password" isSettings={true}>
      <form onSubmit={submit}>
        {/* Password managers need to know whose password it is. */}
        <input
          type="text"
          class="unseen"
          tabindex={-1}
          aria-hidden="true"
          autocomplete="username"
          readonly
          value={me.value?.email}
        />
        <Text
          frame={SettingRow}
          label="Current password"
          errors={error?.fields["current_password"]}
          value={present}
          set={setPresent}
          control={{ type: "password", autocomplete: "current-password", required: true }}
        />
        <Text
          frame={SettingRow}
          label="New password"
          help={`At least ${minPasswordLength} characters.`}
          errors={error?.fields["new_password"]}
          value={next}
          set={setNext}
          control={{
            type: "password",
            autocomplete: "new-password",
            required: true,
            minlength: minPasswordLength,
          }}
        />
        <div class="in">
          <FormFailure error={error} shown={["current_password", "new_password"]} />
          <button disabled={isRunning}>Change the password and sign out everywhere</button>
        </div>
      </form>
    </Panel>
  );
}

const ownSessions: SessionsPath = (...query) => apiPath(ownSessionsApi.list, {}, ...query);
const endOwn = (id: number) => call(ownSessionsApi.delete, { id });

function Sessions() {
  const shown = shownOrganization.value;
  return (
    <div id="sessions">
      <SessionList title="Sessions" list={ownSessions} endOne={endOwn} command={["session", "list"]} />
      <p class="help">
        A new second factor ends no session.
        {isAdmin(shown) ? (
          <>
            {" "}
            Those of others: <a href={pathOf(shown?.slug ?? "", "people")}>Members</a>.
          </>
        ) : null}
      </p>
    </div>
  );
}
