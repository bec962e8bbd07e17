// What can be done with all machines that are selected in the list.

import { useState } from "preact/hooks";
import type { Node } from "../../protocol/node.ts";
import { get, org, send } from "../api.ts";
import { partsOf } from "../field-parts.ts";
import { html } from "../html.ts";
import type { Machine } from "../machines.ts";
import { slug } from "../me.ts";
import { refresh } from "../resource.ts";
import { item } from "../terminal.ts";
import { Bulk } from "../ui/bulk.ts";
import { FromTerminal } from "../ui/parts.ts";
import { GroupsField } from "./groups-field.ts";
import { revoking, useReason } from "./revoke-reason.ts";

type Verb = "groups" | "renew" | "revoke" | "restore";
const verbs: readonly (readonly [Verb, string])[] = [
  ["groups", "Change groups"],
  ["renew", "Renew certificates"],
  ["revoke", "Revoke"],
  ["restore", "Restore"],
];

/** Machines that the verb can be done with. */
const fitting: Readonly<Record<Verb, (machine: Machine) => boolean>> = {
  groups: ({ state }) => state !== "revoked",
  renew: ({ state }) => state === "active",
  revoke: ({ state }) => state !== "revoked",
  restore: ({ state }) => state === "revoked",
};

type Props = {
  machines: readonly Machine[];
  /** So many were selected, until a filter hid them. */
  dropped: number;
  clear(): void;
};

function wordsOf(count: number, dropped: number): string {
  if (count === 0 && dropped === 0) return "Tick machines to change several at once.";
  const hidden =
    dropped === 1 ? "1 is not shown: it was unticked." : `${dropped} are not shown: they were unticked.`;
  return `${count} selected${dropped === 0 ? "" : `. ${hidden}`}`;
}

/** It stands there while nothing is selected, too: the table below must not move under the pointer. */
export function Selected({ machines, dropped, clear }: Props) {
  // What was asked stays the question, although the list changes meanwhile.
  const [asked, ask] = useState<{ verb: Verb; machines: readonly Machine[] } | undefined>(undefined);
  return html`<div class="tools steady" role="group" aria-label="Selected machines">
    <span role="status" class=${machines.length === 0 ? "quiet" : ""}
      >${wordsOf(machines.length, dropped)}</span
    >
    ${verbs.map(([verb, words]) =>
      machines.some(fitting[verb])
        ? html`<button
            type="button"
            key=${verb}
            class=${verb === "revoke" ? "danger" : ""}
            onClick=${() => ask({ verb, machines: machines.filter(fitting[verb]) })}
          >
            ${words}
          </button>`
        : null,
    )}
    ${machines.length === 0 ? null : html`<button type="button" onClick=${clear}>Clear the selection</button>`}
    ${asked === undefined ? null : html`<${dialogs[asked.verb]} machines=${asked.machines} close=${() => ask(undefined)} />`}
  </div>`;
}

type DialogProps = { machines: readonly Machine[]; close(): void };

/** One machine by its name. */
const namedOf = (machines: readonly Machine[]) =>
  machines.length === 1 && machines[0] !== undefined ? machines[0].name : `${machines.length} machines`;
const shared = ({ machines, close }: DialogProps) => ({
  items: machines,
  hasNames: machines.length > 1,
  after: () => refresh(org(slug.value ?? "", "")),
  close,
});
/** One command for each machine. */
const forEach = (machines: readonly Machine[], verb: string, flags: readonly string[] = []) => ({
  command: ["node", verb, slug.value ?? "", item, ...flags],
  each: machines.map(({ name }) => name),
});

function Groups(props: DialogProps) {
  const { machines } = props;
  const own = slug.value ?? "";
  const [adds, setAdds] = useState("");
  const [removes, setRemoves] = useState("");
  const [added, removed] = [partsOf(adds), partsOf(removes)];
  const flags = [
    ...added.flatMap((group) => ["--add-group", group]),
    ...removed.flatMap((group) => ["--remove-group", group]),
  ];
  const run = async ({ id }: Machine) => {
    // The list may be a moment old, and the request replaces all groups.
    const path = org(own, `nodes/${id}/`);
    const { groups: present } = await get<Node>(path);
    const groups = [...new Set([...present, ...added])].filter((group) => !removed.includes(group));
    if (groups.join("\n") !== present.join("\n")) await send("PATCH", path, { groups });
  };
  return html`<${Bulk}
    title=${`Groups of ${namedOf(machines)}`}
    action=${`Change the groups of ${namedOf(machines)}`}
    ...${shared(props)}
    run=${run}
  >
    <${GroupsField}
      label="Add to groups"
      help="Separated by commas. A new name makes a new group."
      value=${adds}
      set=${setAdds}
    />
    <${GroupsField}
      label="Remove from groups"
      help="Separated by commas."
      value=${removes}
      set=${setRemoves}
    />
    <${FromTerminal}
      ...${forEach(machines, "update", flags)}
      call=${["PATCH", org(own, "nodes/{id}/"), { groups: ["…"] }]}
    />
  <//>`;
}

function Renew(props: DialogProps) {
  const { machines } = props;
  const own = slug.value ?? "";
  return html`<${Bulk}
    title=${`Renew the certificates of ${namedOf(machines)}?`}
    action=${`Renew ${namedOf(machines)}`}
    ...${shared(props)}
    run=${({ id }: Machine) => send("POST", org(own, `nodes/${id}/renew_cert/`))}
  >
    <p>A new certificate comes with the next check-in. No connection is lost.</p>
    <${FromTerminal} ...${forEach(machines, "renew")} call=${["POST", org(own, "nodes/{id}/renew_cert/")]} />
  <//>`;
}

function Revoke(props: DialogProps) {
  const { machines } = props;
  const own = slug.value ?? "";
  const { field, query, flags } = useReason();
  return html`<${Bulk}
    title=${`Revoke ${namedOf(machines)}?`}
    action=${`Revoke ${namedOf(machines)}`}
    ...${shared(props)}
    isDanger=${true}
    asksCount=${true}
    run=${({ id }: Machine) => send("DELETE", org(own, `nodes/${id}/`) + query)}
  >
    <p>${revoking(machines.length === 1)}</p>
    ${field}
    <${FromTerminal}
      ...${forEach(machines, "revoke", flags)}
      call=${["DELETE", org(own, "nodes/{id}/") + query]}
    />
  <//>`;
}

function Restore(props: DialogProps) {
  const { machines } = props;
  const own = slug.value ?? "";
  return html`<${Bulk}
    title=${`Restore ${namedOf(machines)}?`}
    action=${`Restore ${namedOf(machines)}`}
    ...${shared(props)}
    run=${({ id }: Machine) => send("POST", org(own, `nodes/${id}/restore/`))}
  >
    <p>
      ${
        machines.length === 1
          ? "The other machines accept it again as soon as it has a new certificate."
          : "The other machines accept them again as soon as they have new certificates."
      }
    </p>
    <${FromTerminal} ...${forEach(machines, "restore")} call=${["POST", org(own, "nodes/{id}/restore/")]} />
  <//>`;
}

const dialogs = { groups: Groups, renew: Renew, revoke: Revoke, restore: Restore };
