// One machine: what it is, how it reaches its peers, what happened to it, and what can be done with it.

import { useEffect, useState } from "preact/hooks";
import { groupsByOwner } from "../../owner-group.ts";
import type { Node } from "../../protocol/node.ts";
import { thingsOf } from "../activity.ts";
import { isAbout } from "../actor.ts";
import { org } from "../api.ts";
import { html } from "../html.ts";
import { useLog } from "../events.ts";
import { onSeen } from "../live.ts";
import { mayAdminister, me, slug } from "../me.ts";
import { useMemberNames } from "../member-names.ts";
import { useDueNode } from "../own-machines.ts";
import { relayText, useRelays } from "../relays.ts";
import { configurationOf, isPresent, noPathsOf, stateOf } from "../nodes.ts";
import { refresh, useList, useResource, type Resource } from "../resource.ts";
import { pathOf, useShownName } from "../router.ts";
import { dated, Empty, Facts, Failure, FromTerminal, Loading, State, When } from "../ui/parts.ts";
import { Events } from "../ui/events.ts";
import { Export } from "../ui/tools.ts";
import { Edit } from "./machine-edit.ts";
import { Names } from "./machine-names.ts";
import type { PeerPath } from "../peer-path.ts";
import { dialogs } from "./selected-machines.ts";
import { Configuration, Firewall } from "./machine-standing.ts";

/** How a node reaches a peer, as GET nodes/{id}/peers/ shows it. */
type Path = PeerPath & { peer_name: string | null; peer_address: string; remote: string | null };

/** The control plane writes reported paths within a second after the check-in that brought them. */
const pathsMs = 1200;

/** Check-ins are no events of the audit log: the stream names the machines that were in contact. */
function useContacts(path: string, id: string): void {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const leave = onSeen((contacts) => {
      if (!contacts.some(([seen]) => `${seen}` === id)) return;
      void refresh(path);
      clearTimeout(timer);
      timer = setTimeout(() => void refresh(`${path}peers/`), pathsMs);
    });
    return () => {
      clearTimeout(timer);
      leave();
    };
  }, [path, id]);
}

export function Machine({ id }: { id: string }) {
  const own = slug.value ?? "";
  const path = org(own, `nodes/${encodeURIComponent(id)}/`);
  const { data: node, error } = useResource<Node>(path);
  useContacts(path, id);
  useShownName(node?.name ?? "");
  const peers = useList<Path>(mayAdminister.value ? `${path}peers/?page_size=1000` : "");
  if (error?.status === 404)
    return html`<${Empty} text="There is no such machine. It may have been deleted.">
      <a href=${pathOf(own, "machines")}>All machines</a>
    <//>`;
  // With its paths, so that nothing below them moves when they come.
  if (node === undefined || (mayAdminister.value && (peers.data ?? peers.error) === undefined))
    return error === undefined ? html`<${Loading} />` : html`<${Failure} error=${error} />`;
  const [state, word] = stateOf({ ...node, isLate: node.not_applied_since != null });
  return html`<p><a href=${pathOf(own, "machines")}>Machines</a></p>
    <h1><bdi>${node.name}</bdi></h1>
    <p>
      <${State} name=${state} word=${word} /><${Revoked} node=${node} />
      ${node.phone != null && node.state === "active" && node.owner_id === me.value?.id ? html`${" "}<a href=${pathOf(own, "phones")}>Import it again</a>` : null}
    </p>
    <${NodeFacts} node=${node} />
    ${node.is_relay ? html`<${Forwarded} id=${node.id} />` : null}
    ${mayAdminister.value ? html`<${Actions} node=${node} /><${Peers} node=${node} found=${peers} />` : null}
    ${node.state === "revoked" ? null : html`<${Names} node=${node} />`}
    <${Firewall} node=${node} />
    ${node.state === "active" && node.phone == null ? html`<${Configuration} node=${node} />` : null}
    <${History} node=${node} />`;
}

function NodeFacts({ node }: { node: Node }) {
  const { certificate } = node;
  const { words, isBehind } = configurationOf(node);
  const byOwner = groupsByOwner(node);
  const due = useDueNode(slug.value ?? "", node);
  const facts = [
    ["Address", [node.ip_address, node.ip_address6].filter((each) => each !== null).join(", ")],
    ["Groups", node.groups.length === 0 ? "none" : node.groups.join(", ")],
    ...(byOwner.length === 0 ? [] : [["Groups by its owner", byOwner.join(", ")]]),
    ["Roles", rolesOf(node)],
    ["Networks behind it", node.subnets.length === 0 ? "none" : node.subnets.join(", ")],
    ["Engine", node.overlay_version ?? "unknown"],
    ["Agent", [node.agent_version, node.platform].filter((each) => each !== null).join(", ") || "unknown"],
    ...(due === undefined
      ? []
      : [["Its user confirms it by", html`<${When} at=${due.until} />, or it is revoked`]]),
    node.phone == null
      ? ["Last check-in", html`<${When} at=${node.last_checkin_at} />`]
      : ["Imported", html`<${When} at=${node.phone.imported_at} />`],
    ["Certificate ends", certificate === null ? "none" : dated(Date.parse(certificate.not_after))],
    [
      "Configuration",
      isBehind
        ? html`<a class=${node.not_applied_since == null ? "" : "limited"} href="#configuration">${words}</a>`
        : words,
    ],
    ["Created", html`<${When} at=${node.created_at} />`],
  ];
  return html`<${Facts} facts=${facts} />`;
}

/** Since when, by whom and why it is revoked. */
function Revoked({ node: { revoked_at, revoked_by: by = "", revoke_reason: why } }: { node: Node }) {
  const names = useMemberNames(slug.value ?? "");
  if (revoked_at === null) return null;
  const user = by.startsWith("person/") ? names.get(Number(by.slice(7))) : undefined;
  return html`${" "}<${When}
      at=${revoked_at}
    />${by === "" ? "" : html` by <bdi>${user ?? by}</bdi>`}${why === undefined ? "" : html`: <bdi>${why}</bdi>`}`;
}

function rolesOf({ is_lighthouse, is_relay, is_name_server, public_ip, external_port }: Node): string {
  const named = { lighthouse: is_lighthouse, relay: is_relay, "name server": is_name_server };
  const roles = Object.entries(named).flatMap(([role, isSet]) => (isSet === true ? [role] : []));
  if (public_ip !== null) roles.push(`reached at ${public_ip}:${external_port ?? 4242}`);
  return roles.join(", ") || "none";
}

function Forwarded({ id }: { id: number }) {
  const relay = useRelays().find(({ node }) => node === id);
  if (relay === undefined) return null;
  return html`<p>${relayText(relay)}</p>`;
}

type Asked = "edit" | "revoke" | "restore" | "renew" | undefined;

function Actions({ node }: { node: Node }) {
  const [asked, ask] = useState<Asked>(undefined);
  const close = () => ask(undefined);
  const isRevoked = node.state === "revoked";
  return html`<div class="actions">
      <button type="button" onClick=${() => ask("edit")} disabled=${isRevoked}>Edit</button>
      <button
        type="button"
        onClick=${() => ask("renew")}
        disabled=${node.state !== "active" || node.phone != null}
      >
        Renew certificate
      </button>
      ${
        isRevoked
          ? html`<button type="button" onClick=${() => ask("restore")}>Restore</button>`
          : html`<button type="button" class="danger" onClick=${() => ask("revoke")}>Revoke</button>`
      }
    </div>
    ${asked === "edit" ? html`<${Edit} node=${node} close=${close} />` : null}
    ${asked === undefined || asked === "edit" ? null : html`<${dialogs[asked]} machines=${[node]} close=${close} />`}`;
}

const peerColumns = [
  { title: "Peer", text: ({ peer_name, peer_address }: Path) => peer_name ?? peer_address },
  { title: "Address", text: ({ peer_address }: Path) => peer_address },
  { title: "Path", text: ({ path, probe }: Path) => (probe === "broken" ? probe : path) },
  { title: "Relays", text: ({ relays }: Path) => relays.join(" ") },
  { title: "Remote", text: ({ remote }: Path) => remote ?? "" },
  { title: "Round trip, ms", text: ({ rtt_ms }: Path) => `${rtt_ms ?? ""}` },
  { title: "Loss", text: ({ loss }: Path) => `${loss ?? ""}` },
];

function Peers({ node, found }: { node: Node; found: Resource<readonly Path[]> }) {
  const { data: peers, error } = found;
  if (peers === undefined) return error === undefined ? null : html`<${Failure} error=${error} />`;
  return html`<div class="tools">
      <h2>Paths to its peers</h2>
      ${peers.length === 0 ? null : html`<${Export} file=${`${node.name}-paths.csv`} items=${peers} columns=${peerColumns} />`}
    </div>
    ${
      peers.length === 0
        ? html`<p class="quiet">${noPathsOf(node)}</p>`
        : html`${
              isPresent(node)
                ? null
                : html`<p class="quiet">
                    It is ${node.state === "active" ? "away" : stateOf(node)[1]}: it reported these before,
                    its last check-in was${" "}<${When} at=${node.last_checkin_at} />.
                  </p>`
            }
            <div class="wide" tabindex="0">
              <table class="stack">
                <thead>
                  <tr>
                    <th>Peer</th>
                    <th>Path</th>
                    <th>Round trip</th>
                    <th>Loss</th>
                  </tr>
                </thead>
                <tbody>
                  ${peers.map(
                    (peer) =>
                      html`<tr key=${peer.peer_address}>
                        <td><${PeerName} peer=${peer} /></td>
                        <td data-title="Path"><${PathState} peer=${peer} isPresent=${isPresent(node)} /></td>
                        <td data-title="Round trip">${peer.rtt_ms === null ? "-" : `${peer.rtt_ms} ms`}</td>
                        <td data-title="Loss">
                          ${peer.loss === null ? "-" : `${Math.round(peer.loss * 100)} %`}
                        </td>
                      </tr>`,
                  )}
                </tbody>
              </table>
            </div>`
    }
    <${FromTerminal}
      command=${["path", "list", slug.value ?? "", "--node", node.name]}
      call=${["GET", org(slug.value ?? "", `nodes/${node.id}/peers/`)]}
    />`;
}

function PeerName({ peer: { peer, peer_name, peer_address } }: { peer: Path }) {
  const name = html`<bdi>${peer_name ?? peer_address}</bdi>`;
  return peer === null ? name : html`<a href=${pathOf(slug.value ?? "", "machines", peer)}>${name}</a>`;
}

/** What a machine that is away reported has no colour. */
function PathState({ peer, isPresent }: { peer: Path; isPresent: boolean }) {
  if (!isPresent)
    return peer.probe === "broken"
      ? html`<strong>broken</strong>`
      : html`<span class="quiet">${peer.path}</span>`;
  if (peer.probe === "broken") return html`<${State} name="attention" word="broken" />`;
  if (peer.path === "relayed")
    return html`<${State} name="limited" word=${`relayed by ${peer.relays.join(", ")}`} />`;
  if (peer.path === "direct") return html`<${State} name="online" word=${`direct ${peer.remote ?? ""}`} />`;
  return html`<span class="quiet">${peer.path === "none" ? "no tunnel" : "unknown"}</span>`;
}

/** The log is read back this far for something about the machine: one or two requests more. */
const readBackTo = 2000;

function History({ node }: { node: Node }) {
  const { events, isAll, isReading, older } = useLog(slug.value ?? "", 1000);
  const names = useMemberNames(slug.value ?? "");
  const own = events.filter((event) => isAbout(event, `node/${node.id}`));
  const isSearching = own.length === 0 && !isAll && events.length > 0 && events.length < readBackTo;
  useEffect(() => {
    if (isSearching && !isReading) older();
  }, [isSearching, isReading]);
  return html`<h2>What happened</h2>
    ${own.length === 0 ? html`<p class="quiet">${isAll ? "Nothing." : isReading || isSearching ? "Reading." : `Nothing among the last ${events.length.toLocaleString()} events of the organization.`}</p>` : html`<${Events} events=${own} names=${names} things=${thingsOf(events)} />`}
    <p>
      <a href=${`${pathOf(slug.value ?? "", "activity")}?subject=node/${node.id}`}
        >Look further back in Activity</a
      >
    </p>`;
}
