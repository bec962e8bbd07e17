// The browsers and command lines in which a person is signed in: the own ones on the page of the account, those of a member in a
// dialog. Each can be ended.

import { useState } from "preact/hooks";
import { send } from "../api.ts";
import { html } from "../html.ts";
import { refresh, useList } from "../resource.ts";
import { List, textColumn } from "../ui/list.ts";
import { Confirm, When } from "../ui/parts.ts";
import type { Column } from "../ui/rows.ts";
import { timeColumn } from "../ui/time-column.ts";
import { browserWords } from "../user-agent.ts";

type Session = {
  id: number;
  kind: "browser" | "command_line";
  device: string;
  address: string;
  created_at: string;
  last_used_at: string;
  expires_at: string;
  is_current: boolean;
  /** Nodes whose machine proved that the session is on it. */
  nodes: readonly { org_slug: string; name: string }[];
};

type Props = {
  path: string;
  /** Arguments of `agent admin`. */
  command: readonly string[];
  /** Ends them all; without it, one after the other but this browser. */
  endAll?: { title: string; run(): Promise<unknown> };
};

const wordsOf = ({ kind, device }: Session) =>
  kind === "browser" ? browserWords(device) : device === "" ? "Command line" : device;
const machinesOf = ({ nodes }: Session) =>
  nodes.map(({ org_slug, name }) => `${name} in ${org_slug}`).join(", ");

export function SessionList({ path, command, endAll }: Props) {
  const { data = [] } = useList<Session>(`${path}?page_size=1000`);
  const [ending, end] = useState<Session | "all" | undefined>(undefined);
  const others = data.filter(({ is_current }) => !is_current);
  const close = () => end(undefined);
  return html`<${List}
      label="Sessions"
      path=${path}
      columns=${columnsFor(end)}
      keyOf=${({ id }: Session) => id}
      empty="None."
      command=${command}
    >
      ${
        others.length === 0
          ? null
          : html`<button type="button" onClick=${() => end("all")}>
              ${endAll === undefined ? "Sign all others out" : "Sign out everywhere"}
            </button>`
      }
    <//>
    ${
      ending === "all"
        ? html`<${Confirm}
            title=${endAll?.title ?? "Sign all others out?"}
            action=${endAll === undefined ? `Sign ${others.length} out` : "Sign out everywhere"}
            effect=${html`<p>
              ${endAll === undefined ? "This browser stays signed in." : "All browsers and command lines must sign in again."}
            </p>`}
            run=${async () => {
              if (endAll === undefined) for (const { id } of others) await send("DELETE", `${path}${id}/`);
              else await endAll.run();
              await refresh(path);
            }}
            close=${close}
          />`
        : null
    }
    ${
      typeof ending === "object"
        ? html`<${Confirm}
            title=${ending.kind === "browser" ? "Sign that browser out?" : "Sign that command line out?"}
            action="Sign it out"
            effect=${html`<p>
              <bdi>${wordsOf(ending)}</bdi> at <bdi>${ending.address}</bdi>, signed in${" "}
              <${When} at=${ending.created_at} />, must sign in again.
            </p>`}
            run=${async () => {
              await send("DELETE", `${path}${ending.id}/`);
              await refresh(path);
            }}
            close=${close}
          />`
        : null
    }`;
}

function columnsFor(end: (session: Session) => void): readonly Column<Session>[] {
  return [
    {
      key: "device",
      title: "Browser or command line",
      width: 3,
      text: (session) => `${wordsOf(session)} ${machinesOf(session)}`,
      cell: (session) =>
        html`<bdi title=${session.device}>${wordsOf(session)}</bdi>
          ${session.nodes.length === 0 ? null : html`<span class="quiet">on <bdi>${machinesOf(session)}</bdi></span>`}`,
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
}
