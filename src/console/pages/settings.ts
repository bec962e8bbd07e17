// The settings of the organization.

import { apiPath } from "../../api/endpoint.ts";
import { organizationsApi, type Organization } from "../../api/organizations.ts";
import "../core.ts";
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { call, type ApiError } from "../api.ts";
import { html } from "../html.ts";
import { factors, mayAdminister, organization, readMe, slug } from "../me.ts";
import { refresh, useResource } from "../resource.ts";
import { go, root } from "../router.ts";
import { Check, Choice, FormFailure, Text, useAction } from "../ui/form.ts";
import { Confirm, Facts, Failure, FromTerminal, Loading } from "../ui/parts.ts";
import { tell } from "../ui/told.ts";
import { setUnsaved } from "../unsaved.ts";
import { OwnProviders } from "./own-providers.ts";

type Switches = Pick<
  Organization,
  | "second_factor_required"
  | "ca_rotation_auto"
  | "names_to_all"
  | "path_reports"
  | "revoke_leaver_nodes"
  | "revoke_unproven_nodes"
  | "device_codes"
>;
const ownPath = (own: string) => apiPath(organizationsApi.retrieve, { slug: own });
type SelfEnrollment = Organization["self_enrollment"];
type OfUsers = Pick<Organization, "self_enrollment" | "reauthenticate_days">;
type OfCertificates = Pick<Organization, "certificate_version" | "network6">;

/** Each switch: what it means, and its flag of `agent admin org update`, on and off. */
const switches: Readonly<Record<keyof Switches, readonly [string, string, string]>> = {
  second_factor_required: [
    "Members need a second factor. Those who have none must set one up before they go on",
    "--second-factor required",
    "--second-factor optional",
  ],
  ca_rotation_auto: [
    "The control plane replaces the CAs by itself before they end",
    "--ca-rotation auto",
    "--ca-rotation manual",
  ],
  names_to_all: [
    "Machines get the names of all machines, not only of those that rules let them reach",
    "--names all",
    "--names rules",
  ],
  path_reports: [
    "Machines report how they reach each other. Off deletes what they reported",
    "--path-reports on",
    "--path-reports off",
  ],
  revoke_leaver_nodes: [
    "The machines of a user who is removed or disabled are revoked",
    "--leaver-nodes revoke",
    "--leaver-nodes keep",
  ],
  revoke_unproven_nodes: [
    "The machines of a user whose provider cannot be asked (see below) are revoked 24 hours after the last sign-in, on weekends too. Users with a password or a passkey keep theirs",
    "--unproven-nodes revoke",
    "--unproven-nodes keep",
  ],
  device_codes: [
    "Members may sign the command line in by a code that they type in a browser",
    "--device-codes allow",
    "--device-codes forbid",
  ],
};
const enrollmentChoices = [
  ["off", "Nobody"],
  ["admins", "Administrators"],
  ["members", "All members"],
] as const;
/** `present`: the command line and the API take any number of days. */
const periodChoices = (present: number | null) => [
  ["", "Never"],
  ...[...new Set([30, 90, 180, 365, present ?? 30])].map(
    (days) => [`${days}`, `Every ${days} days`] as const,
  ),
];
const keys = Object.keys(switches) as (keyof Switches)[];

export function Settings() {
  const own = slug.value ?? "";
  const { data, error } = useResource(ownPath(own));
  if (data === undefined)
    return error === undefined ? html`<${Loading} />` : html`<${Failure} error=${error} />`;
  const facts = [
    ["Slug", data.slug],
    ["Network", data.network],
    ["Machines", `${data.node_count}`],
    ["Configuration", `version ${data.config_version}`],
  ];
  return html`<h1>Settings</h1>
    <${Facts} facts=${facts} />
    <${Form} key=${own} present=${data} />
    ${mayAdminister.value ? html`<${OwnProviders} key=${`providers ${own}`} />` : null}
    ${organization.value?.role === "owner" ? html`<${Deletion} present=${data} />` : null}`;
}

type Edits = Partial<Switches & OfUsers & OfCertificates & Pick<Organization, "name" | "name_suffix">>;
/** Flags of `agent admin org update`, with their word for none. */
const flags = [
  ["name", "--name"],
  ["self_enrollment", "--self-enrollment"],
  ["name_suffix", "--name-suffix", "none"],
  ["reauthenticate_days", "--reauthenticate", "off"],
  ["certificate_version", "--certificate-version"],
  ["network6", "--network6"],
] as const;

/** Unsaved edits by organization: they outlive the page, but not the tab. */
const drafts = signal<Readonly<Record<string, Edits>>>({});

/** `isKept`: whether an edit stays. */
function edit(own: string, more: Edits, isKept: (key: keyof Edits, value: unknown) => boolean): void {
  const all = Object.entries({ ...drafts.peek()[own], ...more });
  const edits = Object.fromEntries(all.filter(([key, value]) => isKept(key as keyof Edits, value)));
  drafts.value = { ...drafts.peek(), [own]: edits };
  setUnsaved(`${own}/settings`, Object.keys(edits).length > 0);
}

function Form({ present }: { present: Organization }) {
  const own = slug.value ?? "";
  const changes = (Object.hasOwn(drafts.value, own) ? drafts.value[own] : undefined) ?? {};
  const now = { ...present, ...changes };
  const set = (more: Edits) => edit(own, more, (key, value) => value !== present[key]);
  const changed = keys.filter((key) => key in changes);
  const { error, isRunning, submit } = useAction(async () => {
    const { network6, ...others } = changes;
    const body = { ...others, ...(network6 == null ? {} : { network6 }) };
    await call(organizationsApi.update, { slug: own }, body);
    await Promise.all([refresh(ownPath(own)), readMe()]);
    // Keep what the user typed meanwhile.
    edit(own, {}, (key, value) => value !== changes[key]);
    tell("Saved.");
  });
  const words = [
    "org",
    "update",
    own,
    ...flags.flatMap(([key, flag, none = ""]) => (key in changes ? [flag, now[key] ?? none] : [])),
    ...changed.flatMap((key) => switches[key][now[key] ? 1 : 2].split(" ")),
  ];
  return html`<form class="narrow" onSubmit=${submit}>
    <${Text}
      label="Name"
      errors=${error?.fields["name"]}
      value=${now.name}
      set=${(name: string) => set({ name })}
      control=${{ required: true, maxlength: 100, disabled: !mayAdminister.value }}
    />
    <${Text}
      label="Second domain, beside .internal (root of each machine has to allow it)"
      errors=${error?.fields["name_suffix"]}
      value=${now.name_suffix ?? ""}
      set=${(text: string) => set({ name_suffix: text === "" ? null : text })}
      control=${{ placeholder: "corp.example", maxlength: 189, disabled: !mayAdminister.value }}
    />
    ${keys.map(
      (key) =>
        html`<p key=${key}>
          <${Check}
            label=${switches[key][0]}
            checked=${now[key]}
            disabled=${!mayAdminister.value}
            set=${(isOn: boolean) => set({ [key]: isOn })}
          />
        </p>`,
    )}
    ${
      changes.second_factor_required && factors.value?.totp === false && factors.value.passkeys === 0
        ? html`<p class="limited" role="status">You have none: its set-up page comes next.</p>`
        : null
    }
    <${UserMachines} ...${{ present, now, error, set }} />
    <${Certificates} ...${{ present, now, error, set }} />
    <${FormFailure} error=${error} shown=${flags.map(([key]) => key)} />
    ${
      mayAdminister.value
        ? html`<div class="actions">
              <button class="primary" disabled=${isRunning || Object.keys(changes).length === 0}>Save</button>
              <button
                type="button"
                disabled=${Object.keys(changes).length === 0}
                onClick=${() => edit(own, {}, () => false)}
              >
                Discard
              </button>
            </div>
            <${FromTerminal} command=${words} call=${["PATCH", ownPath(own), changes]} />`
        : html`<p class="quiet">Administrators change these.</p>`
    }
  </form>`;
}

type PartProps<T> = { present: T; now: T; error: ApiError | undefined; set(more: Partial<T>): void };

/** What users may and must do with machines of their own. */
function UserMachines({ present, now, error, set }: PartProps<OfUsers>) {
  return html`<${Choice}
      label="Who may add machines of their own by confirming them in a browser (agent up with the address of the control plane)"
      errors=${error?.fields["self_enrollment"]}
      value=${now.self_enrollment}
      disabled=${!mayAdminister.value}
      set=${(word: SelfEnrollment) => set({ self_enrollment: word })}
      choices=${enrollmentChoices}
    />
    <${Choice}
      label="How often users confirm that their machines are still theirs. Others are cut off; users are told 7 days before"
      errors=${error?.fields["reauthenticate_days"]}
      value=${String(now.reauthenticate_days ?? "")}
      disabled=${!mayAdminister.value}
      set=${(word: string) => set({ reauthenticate_days: word === "" ? null : Number(word) })}
      choices=${periodChoices(present.reauthenticate_days)}
    />`;
}

const versionChoices = [
  ["1", "1: IPv4"],
  ["both", "1 and 2: the step between"],
  ["2", "2: IPv4 and IPv6"],
] as const;

/** The control plane refuses a step that a machine cannot follow, and names the machine. */
function Certificates({ present, now, error, set }: PartProps<OfCertificates>) {
  return html`<${Choice}
      label="Version of the certificates. 2 needs engine 1.10 on all machines; go step by step"
      errors=${error?.fields["certificate_version"]}
      value=${`${now.certificate_version}`}
      disabled=${!mayAdminister.value}
      set=${(word: string) => set({ certificate_version: word === "both" ? word : (Number(word) as 1 | 2) })}
      choices=${versionChoices}
    />
    <${Text}
      label="IPv6 network"
      help="It works with version 2, and stays. The first address restarts each engine once, one after the other."
      errors=${error?.fields["network6"]}
      value=${now.network6 ?? ""}
      set=${(text: string) => set({ network6: text === "" ? null : text })}
      control=${{ placeholder: "fd77::/64", disabled: !mayAdminister.value || present.network6 !== null }}
    />`;
}

function Deletion({ present }: { present: Organization }) {
  const [isAsked, ask] = useState(false);
  return html`<h2>Delete the organization</h2>
    <p>All its machines are revoked and its network ends. There is no way back.</p>
    <button type="button" class="danger" onClick=${() => ask(true)}>Delete ${present.slug}</button>
    ${
      isAsked
        ? html`<${Confirm}
            title=${`Delete ${present.slug}?`}
            action=${`Delete ${present.slug} and revoke its ${present.node_count} machines`}
            effect=${html`<p>All tunnels of its machines end within seconds. There is no way back.</p>
              <${FromTerminal}
                command=${["org", "delete", present.slug]}
                call=${["DELETE", ownPath(present.slug)]}
              />`}
            typeName=${present.slug}
            run=${async () => {
              await call(organizationsApi.delete, present);
              await readMe();
              go(root);
            }}
            close=${() => ask(false)}
          />`
        : null
    }`;
}
