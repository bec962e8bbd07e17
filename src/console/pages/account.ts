// What belongs to the signed-in person: password, second factors, and the browsers that are signed in.

import "../core.ts";
import { useState } from "preact/hooks";
import { isSignedOut, send } from "../api.ts";
import { html } from "../html.ts";
import { isFactorMissing, me } from "../me.ts";
import { refresh, useList } from "../resource.ts";
import { chooseDateLanguage, dateLanguage, dateLanguages, exact, now } from "../times.ts";
import { Choice, FormFailure, Text, useAction } from "../ui/form.ts";
import { Confirm, Failure, FromTerminal, Loading, When } from "../ui/parts.ts";
import { Export } from "../ui/tools.ts";
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
        errors=${error?.fields["current_password"]}
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
      <${FormFailure} error=${error} shown=${["current_password", "new_password"]} />
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

const sessionColumns = [
  { title: "Browser", text: ({ device }: Session) => device },
  { title: "Address", text: ({ address }: Session) => address },
  { title: "Signed in", text: ({ created_at }: Session) => created_at },
  { title: "Last used", text: ({ last_used_at }: Session) => last_used_at },
  { title: "Ends", text: ({ expires_at }: Session) => expires_at },
];

function Sessions() {
  const { data, error } = useList<Session>(`${sessionsPath}?page_size=1000`);
  const [ending, end] = useState<Session | undefined>(undefined);
  const [isEndingAll, endAll] = useState(false);
  if (data === undefined)
    return error === undefined ? html`<${Loading} />` : html`<${Failure} error=${error} />`;
  const others = data.filter(({ is_current }) => !is_current);
  return html`<section>
    <div class="tools">
      <h2>Browsers that are signed in</h2>
      <${Export} file="sessions.csv" items=${data} columns=${sessionColumns} />
      ${
        others.length === 0
          ? null
          : html`<button type="button" onClick=${() => endAll(true)}>Sign all others out</button>`
      }
    </div>
    <p class="quiet">
      Command lines with <code>agent login</code> are not listed: only a new password signs them out. A new
      second factor ends no session.
    </p>
    <div class="wide" tabindex="0">
      <table class="stack">
        <thead>
          <tr>
            <th>Browser</th>
            <th>Address</th>
            <th>Signed in</th>
            <th>Last used</th>
            <th>Ends</th>
            <th><span class="unseen">Actions</span></th>
          </tr>
        </thead>
        <tbody>
          ${data.map(
            (session) =>
              html`<tr key=${session.id}>
                <td><bdi title=${session.device}>${browserWords(session.device)}</bdi></td>
                <td data-title="Address"><bdi class="mono">${session.address}</bdi></td>
                <td data-title="Signed in"><${When} at=${session.created_at} /></td>
                <td data-title="Last used"><${When} at=${session.last_used_at} /></td>
                <td data-title="Ends"><${When} at=${session.expires_at} /></td>
                <td>
                  ${
                    session.is_current
                      ? html`<strong>this browser</strong>`
                      : html`<button type="button" class="small" onClick=${() => end(session)}>
                          Sign out
                        </button>`
                  }
                </td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <${FromTerminal} command=${["session", "list"]} call=${["GET", sessionsPath]} />
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
