// What belongs to the signed-in person: password, second factors, and the browsers that are signed in.

import "../core.ts";
import { useState } from "preact/hooks";
import { isSignedOut, send } from "../api.ts";
import { html } from "../html.ts";
import { isFactorMissing, me } from "../me.ts";
import { refresh, useList } from "../resource.ts";
import { chooseDateLanguage, dateLanguage, dateLanguages, exact, now } from "../times.ts";
import { Choice, FormFailure, Text, useAction } from "../ui/form.ts";
import { List, textColumn } from "../ui/list.ts";
import { Confirm, When } from "../ui/parts.ts";
import type { Column } from "../ui/rows.ts";
import { timeColumn } from "../ui/time-column.ts";
import { browserWords } from "../user-agent.ts";
import { Identities } from "./identities.ts";
import { SecondFactors } from "./second-factors.ts";

/** While a required second factor is missing, this page stands in place of every other. */
export function Account() {
  const factors = html`<${SecondFactors} />`;
  if (isFactorMissing.value)
    return html`<h1>Set up a second factor</h1>
      <p>
        An organization of yours, or this control plane, requires a second factor. Add an authenticator app or
        a passkey; then you can go on.
      </p>
      ${factors}`;
  return html`<h1>Account</h1>
    <p>You are signed in as <bdi>${me.value?.email}</bdi>, user ${me.value?.id}.</p>
    ${factors}
    <${Password} />
    <${Identities} />
    <${Sessions} />
    <${Dates} />`;
}

function Dates() {
  return html`<section>
    <h2>Dates</h2>
    <div class="narrow">
      <${Choice}
        label="Write dates"
        help=${`In this browser. Now is ${exact(now.value)}.`}
        value=${dateLanguage.value}
        set=${chooseDateLanguage}
        choices=${dateLanguages}
      />
    </div>
  </section>`;
}

const minLength = 8;

function Password() {
  const [present, setPresent] = useState("");
  const [next, setNext] = useState("");
  const { error, isRunning, submit } = useAction(async () => {
    await send("POST", "/api/user/password/", { current_password: present, new_password: next });
    setPresent("");
    setNext("");
    isSignedOut.value = true;
  });
  const isWrong = error?.code === "invalid_credentials";
  return html`<section>
    <h2>Password</h2>
    <form class="narrow" onSubmit=${submit}>
      <input
        type="text"
        class="unseen"
        tabindex="-1"
        aria-hidden="true"
        autocomplete="username"
        readonly
        value=${me.value?.email}
      />
      <${Text}
        label="Current password"
        errors=${isWrong ? ["This is not your password."] : error?.fields["current_password"]}
        value=${present}
        set=${setPresent}
        control=${{ type: "password", autocomplete: "current-password", required: true }}
      />
      <${Text}
        label="New password"
        help=${`At least ${minLength} characters.`}
        errors=${error?.fields["new_password"]}
        value=${next}
        set=${setNext}
        control=${{ type: "password", autocomplete: "new-password", required: true, minlength: minLength }}
      />
      <${FormFailure} error=${isWrong ? undefined : error} shown=${["current_password", "new_password"]} />
      <button disabled=${isRunning}>Change the password and sign out everywhere</button>
    </form>
  </section>`;
}

type Session = {
  id: number;
  device: string;
  address: string;
  created_at: string;
  last_used_at: string;
  expires_at: string;
  is_current: boolean;
};

const sessionsPath = "/api/user/sessions/";

function Sessions() {
  const { data = [] } = useList<Session>(`${sessionsPath}?page_size=1000`);
  const [ending, end] = useState<Session | undefined>(undefined);
  const [isEndingAll, endAll] = useState(false);
  const others = data.filter(({ is_current }) => !is_current);
  const columns: readonly Column<Session>[] = [
    {
      key: "browser",
      title: "Browser",
      width: 3,
      text: ({ device }) => device,
      cell: ({ device }) => html`<bdi title=${device}>${browserWords(device)}</bdi>`,
    },
    textColumn("address", "Address", 2, ({ address }) => address),
    timeColumn("made", "Signed in", ({ created_at }) => created_at),
    timeColumn("used", "Last used", ({ last_used_at }) => last_used_at),
    timeColumn("expires", "Ends", ({ expires_at }) => expires_at),
    {
      key: "actions",
      title: "Actions",
      width: 2,
      text: () => "",
      cell: (session) =>
        session.is_current
          ? html`<strong>this browser</strong>`
          : html`<button type="button" class="small" onClick=${() => end(session)}>Sign out</button>`,
    },
  ];
  return html`<section>
    <h2>Browsers that are signed in</h2>
    <p class="quiet">
      Command lines with <code>agent login</code> are not listed: only a new password signs them out. A new
      second factor ends no session.
    </p>
    <${List}
      label="Sessions"
      path=${sessionsPath}
      columns=${columns}
      keyOf=${({ id }: Session) => id}
      empty="None."
      command=${["session", "list"]}
    >
      ${others.length === 0 ? null : html`<button type="button" onClick=${() => endAll(true)}>Sign all others out</button>`}
    <//>
    ${isEndingAll ? html`<${EndAll} others=${others} close=${() => endAll(false)} />` : null}
    ${
      ending === undefined
        ? null
        : html`<${Confirm}
            title="Sign that browser out?"
            action="Sign it out"
            effect=${html`<p><bdi>${browserWords(ending.device)}</bdi> at <bdi>${ending.address}</bdi>, signed in${" "}<${When} at=${ending.created_at} />, must sign in again.</p>`}
            run=${async () => {
              await send("DELETE", `${sessionsPath}${ending.id}/`);
              await refresh(sessionsPath);
            }}
            close=${() => end(undefined)}
          />`
    }
  </section>`;
}

function EndAll({ others, close }: { others: readonly Session[]; close(): void }) {
  return html`<${Confirm}
    title="Sign all other browsers out?"
    action=${`Sign ${others.length} out`}
    effect=${html`<p>This browser and command lines stay signed in.</p>`}
    run=${async () => {
      for (const { id } of others) await send("DELETE", `${sessionsPath}${id}/`);
      await refresh(sessionsPath);
    }}
    close=${close}
  />`;
}
