// One machine: what it is, how it reaches its peers, what happened to it, and what can be done with it.

import { nodesApi } from "../../api/nodes.ts";
import { apiPath } from "../../api/endpoint.ts";
import { type Path, pathsApi } from "../../api/paths.ts";
import { defaultOverlayPort } from "../../api/values.ts";
import { useEffect, useState } from "preact/hooks";
import { describeDataPlane } from "../../engine/data-plane-words.ts";
import { groupsByOwner } from "../../protocol/owner-group.ts";
import type { Node } from "../../protocol/node.ts";
import { thingsOf } from "../activity.ts";
import { isAbout } from "../actor.ts";
import { useLog } from "../events.ts";
import { onSeen } from "../live.ts";
import { mayAdminister, me, slug } from "../me.ts";
import { useMemberNames } from "../member-names.ts";
import { useDueNode } from "../own-machines.tsx";
import { relayText } from "../relays.ts";
import { useRelays } from "../use-needs.ts";
import { configurationOf, isPresent, noPathsOf, stateOf, vulnerabilitiesOf } from "../nodes.ts";
import { refresh, useList, useResource, type Resource } from "../resource.ts";
import { pathOf, useShownName } from "../router.ts";
import { dated, Empty, type Fact, Facts, Failure, FromTerminal, Loading, State, When } from "../ui/parts.tsx";
import { Events } from "../ui/events.tsx";
import { Export } from "../ui/tools.tsx";
import { Edit } from "./machine-edit.tsx";
import { Names } from "./machine-names.tsx";
import { Revocation } from "./revocation.tsx";
import { dialogs } from "./selected-machines.tsx";
import { Configuration, Firewall } from "./machine-standing.tsx";

const isBroken = ({ probe }: Path) => probe === "broken";

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
  const params = { slug: own, id: Number(id) };
  const path = apiPath(nodesApi.retrieve, params);
  const { data: node, error } = useResource(path);
  const peers = useList(mayAdminister.value ? apiPath(pathsApi.ofNode, params, { page_size: "1000" }) : "");
  useContacts(path, id);
  useShownName(node?.name ?? "");
  if (error?.status === 404)
    return (
      <>
        <h1>No such machine</h1>
        <Empty text="It may have been deleted.">
          <a href={pathOf(own, "machines")}>All machines</a>
        </Empty>
      </>
    );
  if (node === undefined) return error === undefined ? <Loading /> : <Failure error={error} />;
  // Reserve the space: the content below must not move under the pointer.
  const isReading = mayAdminister.value && (peers.data ?? peers.error) === undefined;
  const broken = peers.data?.filter(isBroken).length;
  const [state, word] = stateOf({ ...node, isLate: node.not_applied_since != null, broken });
  return (
    <>
      <p>
        <a href={pathOf(own, "machines")}>Machines</a>
      </p>
      <h1>
        <bdi>{node.name}</bdi>
      </h1>
      <p>
        <State name={state} word={word} />
        <Revoked node={node} />
        {node.phone != null && node.state === "active" && node.owner_id === me.value?.id ? (
          <>
            {" "}
            <a href={pathOf(own, "phones")}>Import it again</a>
          </>
        ) : null}
      </p>
      <NodeFacts node={node} />
      {node.state === "revoked" ? <Revocation own={own} id={node.id} name={node.name} /> : null}
      {node.is_relay ? <Forwarded id={node.id} /> : null}
      {mayAdminister.value ? (
        <>
          <Actions node={node} />
          <Peers node={node} {...peers} />
        </>
      ) : null}
      <div hidden={isReading}>
        {node.state === "revoked" ? null : <Names node={node} />}
        <Firewall node={node} />
        {node.state === "active" && node.phone == null ? <Configuration node={node} /> : null}
        <History node={node} />
      </div>
    </>
  );
}

function NodeFacts({ node }: { node: Node }) {
  const { certificate, owner_id: owner } = node;
  const names = useMemberNames(slug.value ?? "");
  const { words, isBehind } = configurationOf(node);
  const holes = vulnerabilitiesOf(node);
  const byOwner = groupsByOwner(node);
  const due = useDueNode(slug.value ?? "", node);
  const facts: readonly Fact[] = [
    ["Address", [node.ip_address, node.ip_address6].filter(Boolean).join(", ")],
    ["Groups", node.groups.join(", ") || "none"],
    ...(byOwner.length === 0 ? [] : [["Groups by its owner", byOwner.join(", ")] as const]),
    ...(owner == null ? [] : [["Owner", names.get(owner) ?? `user ${owner}`] as const]),
    ["Roles", rolesOf(node)],
    ["Networks behind it", node.subnets.join(", ") || "none"],
    [
      "Engine",
      <>
        {node.overlay_version ?? "unknown"}
        {holes === "" ? null : (
          <>
            {" "}
            <State name="attention" word={holes} />
          </>
        )}
      </>,
    ],
    ...(node.data_plane == null ? [] : [["Packets", describeDataPlane(node.data_plane)] as const]),
    ["Agent", [node.agent_version, node.platform].filter(Boolean).join(", ") || "unknown"],
    ...(due === undefined
      ? []
      : [
          [
            "Its user confirms it by",
            <>
              <When at={due.until} />, or it is revoked
            </>,
          ] as const,
        ]),
    node.phone == null
      ? ["Last check-in", <When at={node.last_checkin_at} />]
      : ["File made", <When at={node.phone.imported_at} />],
    ["Certificate ends", certificate === null ? "none" : dated(Date.parse(certificate.not_after))],
    [
      "Configuration",
      isBehind ? (
        <a class={node.not_applied_since == null ? "" : "limited"} href="#configuration">
          {words}
        </a>
      ) : (
        words
      ),
    ],
    ["Created", <When at={node.created_at} />],
  ];
  return <Facts facts={facts} />;
}

/** Since when, by whom and why it is revoked. */
function Revoked({ node: { revoked_at, revoked_by: by = "", revoke_reason: why } }: { node: Node }) {
  const names = useMemberNames(slug.value ?? "");
  if (revoked_at === null) return null;
  const user = by.startsWith("person/") ? names.get(Number(by.slice(7))) : undefined;
  return (
    <>
      {" "}
      <When at={revoked_at} />
      {by === "" ? (
        ""
      ) : (
        <>
          {" "}
          by <bdi>{user ?? by}</bdi>
        </>
      )}
      {why === undefined ? (
        ""
      ) : (
        <>
          : <bdi>{why}</bdi>
        </>
      )}
    </>
  );
}

function rolesOf({ is_lighthouse, is_relay, is_name_server, public_ip, external_port }: Node): string {
  const roles = [
    is_lighthouse && "lighthouse",
    is_relay && "relay",
    is_name_server && "name server",
    public_ip !== null && `reached at ${public_ip}:${external_port ?? defaultOverlayPort}`,
  ];
  return roles.filter(Boolean).join(", ") || "none";
}

function Forwarded({ id }: { id: number }) {
  const relay = useRelays().find(({ node }) => node === id);
  if (relay === undefined) return null;
  return <p>{relayText(relay)}</p>;
}

type Asked = "edit" | "revoke" | "restore" | "renew" | undefined;

function Actions({ node }: { node: Node }) {
  const [asked, ask] = useState<Asked>(undefined);
  const Dialog = asked === undefined || asked === "edit" ? undefined : dialogs[asked];
  const close = () => ask(undefined);
  const isRevoked = node.state === "revoked";
  return (
    <>
      <div class="actions">
        <button type="button" onClick={() => ask("edit")} disabled={isRevoked}>
          Edit
        </button>
        <button
          type="button"
          onClick={() => ask("renew")}
          disabled={node.state !== "active" || node.phone != null}
        >
          Renew certificate
        </button>
        {isRevoked ? (
          <button type="button" onClick={() => ask("restore")}>
            Restore
          </button>
        ) : (
          <button type="button" class="danger" onClick={() => ask("revoke")}>
            Revoke
          </button>
        )}
      </div>
      {asked === "edit" ? <Edit node={node} close={close} /> : null}
      {Dialog === undefined ? null : <Dialog machines={[node]} close={close} />}
    </>
  );
}

const peerColumns = [
  { title: "Peer", text: ({ peer_name, peer_address }: Path) => peer_name ?? peer_address },
  { title: "Address", text: ({ peer_address }: Path) => peer_address },
  { title: "Path", text: (peer: Path) => (isBroken(peer) ? "broken" : peer.path) },
  { title: "Relays", text: ({ relays }: Path) => relays.join(" ") },
  { title: "Remote", text: ({ remote }: Path) => remote ?? "" },
  { title: "Round trip, ms", text: ({ rtt_ms }: Path) => `${rtt_ms ?? ""}` },
  { title: "Loss", text: ({ loss }: Path) => `${loss ?? ""}` },
];

function Peers({ node, data: peers, error }: { node: Node } & Resource<readonly Path[]>) {
  if (peers === undefined) return error === undefined ? <Loading /> : <Failure error={error} />;
  return (
    <>
      <div class="tools">
        <h2>Paths to its peers</h2>
        {peers.length === 0 ? null : (
          <Export file={`${node.name}-paths.csv`} items={peers} columns={peerColumns} />
        )}
      </div>
      {peers.length === 0 ? (
        <p class="quiet">{noPathsOf(node)}</p>
      ) : (
        <div class="wide" tabindex={0}>
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
              {peers
                .toSorted((a, b) => Number(isBroken(b)) - Number(isBroken(a)))
                .map((peer) => {
                  const isOld = !isPresent(node) || peer.relays_away;
                  const [rtt, loss] = isOld ? [null, null] : [peer.rtt_ms, peer.loss];
                  return (
                    <tr key={peer.peer_address}>
                      <td>
                        <PeerName peer={peer} />
                      </td>
                      <td data-title="Path">
                        <PathState node={node} peer={peer} isOld={isOld} />
                      </td>
                      <td data-title="Round trip">{rtt === null ? "-" : `${rtt} ms`}</td>
                      <td data-title="Loss">{loss === null ? "-" : `${Math.round(loss * 100)} %`}</td>
                    </tr>
                  );
                })}
            </tbody>
          </table>
        </div>
      )}
      <FromTerminal
        command={["path", "list", slug.value ?? "", "--node", node.name]}
        call={["GET", apiPath(pathsApi.ofNode, { slug: slug.value ?? "", id: node.id })]}
      />
    </>
  );
}

function PeerName({ peer: { peer, peer_name, peer_address } }: { peer: Path }) {
  const name = <bdi>{peer_name ?? peer_address}</bdi>;
  return peer === null ? name : <a href={pathOf(slug.value ?? "", "machines", peer)}>{name}</a>;
}

/** The machine's state, as shape and words. */
const pathsOf = ({ relays, remote }: Path) =>
  ({
    direct: ["online", `direct ${remote ?? ""}`],
    relayed: ["limited", `relayed by ${relays.join(", ")}`],
    none: ["away", "no tunnel"],
    unknown: ["away", "unknown"],
  }) as const;

/** Outdated paths have no colour: the machine that reported them is away, or their relays are. */
function PathState({ node, peer, isOld }: { node: Node; peer: Path; isOld: boolean }) {
  const [name, word] = isBroken(peer) ? (["attention", "broken"] as const) : pathsOf(peer)[peer.path];
  if (isOld)
    return (
      <State
        name="away"
        word={
          <>
            {word}, as reported <When at={peer.reported_at} />
          </>
        }
      />
    );
  const why = new URLSearchParams({ from: node.name, to: peer.peer_name ?? "" });
  return (
    <>
      <State name={name} word={word} />
      {isBroken(peer) && peer.peer !== null ? (
        <>
          {" "}
          <a href={`${pathOf(slug.value ?? "", "access")}?${why}`}>Why?</a>
        </>
      ) : null}
    </>
  );
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
  return (
    <>
      <h2>What happened</h2>
      {own.length === 0 ? (
        <p class="quiet">
          {isAll
            ? "Nothing."
            : isReading || isSearching
              ? "Reading."
              : `Nothing among the last ${events.length.toLocaleString()} events of the organization.`}
        </p>
      ) : (
        <Events events={own} names={names} things={thingsOf(events)} />
      )}
      <p>
        <a href={`${pathOf(slug.value ?? "", "activity")}?subject=node/${node.id}`}>
          Look further back in Activity
        </a>
      </p>
    </>
  );
}
