// How a node reaches its peers, as it reported last.

import { pathsApi, type Path } from "../../api/paths/paths.ts";
import { apiPath } from "../../api/endpoint.ts";
import type { Node } from "../../protocol/node.ts";
import { currentSlug } from "../contact/me.ts";
import { isPresent, noPathsOf } from "../nodes/states.ts";
import type { Resource } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { Panel, TerminalButton } from "../ui/page.tsx";
import { Loading, State, When } from "../ui/parts.tsx";
import { Export } from "../ui/lists/tools.tsx";
import { PathLine } from "./path-drawings.tsx";

/** Whether a peer that is online does not answer the node. */
export const isBroken = ({ probe, peer_away }: Path): boolean => probe === "broken" && !peer_away;

/** What is wrong comes first, then the shortest round trip. */
export const inOrder = (peers: readonly Path[]): readonly Path[] =>
  peers.toSorted(
    (a, b) =>
      Number(isBroken(b)) - Number(isBroken(a)) ||
      (a.rtt_ms ?? Number.MAX_VALUE) - (b.rtt_ms ?? Number.MAX_VALUE),
  );

const columns = [
  { title: "Peer", text: ({ peer_name, peer_address }: Path) => peer_name ?? peer_address },
  { title: "Address", text: ({ peer_address }: Path) => peer_address },
  { title: "Path", text: (peer: Path) => (isBroken(peer) ? "broken" : peer.path) },
  { title: "Relays", text: ({ relays }: Path) => relays.join(" ") },
  { title: "Remote", text: ({ remote }: Path) => remote ?? "" },
  { title: "Round trip, ms", text: ({ rtt_ms }: Path) => `${rtt_ms ?? ""}` },
  { title: "Loss, 0 to 1", text: ({ loss }: Path) => `${loss ?? ""}` },
];

type PathsProps = { node: Node } & Pick<Resource<readonly Path[]>, "data" | "error">;

export function Paths({ node, data: peers, error }: PathsProps) {
  const slug = currentSlug.value ?? "";
  const all = peers ?? [];
  const actions = (
    <>
      <TerminalButton
        isSmall={true}
        command={["path", "list", slug, "--node", node.name]}
        call={["GET", apiPath(pathsApi.ofNode, { slug, id: node.id })]}
      />
      {all.length === 0 ? null : (
        <Export file={`${node.name}-paths.csv`} items={all} columns={columns} isSmall={true} />
      )}
    </>
  );
  return (
    <Panel
      title="Paths"
      beside={all.length === 0 ? null : <small class="faint">longer line, longer round trip</small>}
      actions={actions}
    >
      {peers === undefined ? (
        <Loading error={error} />
      ) : peers.length === 0 ? (
        <p class="in quiet">{noPathsOf(node)}</p>
      ) : (
        <div class="scroll-x in">
          <table class="t paths">
            <thead>
              <tr>
                <th scope="col">Peer</th>
                <th scope="col" class="line">
                  Path
                </th>
                <th scope="col" class="num">
                  Round trip
                </th>
                <th scope="col">By</th>
              </tr>
            </thead>
            <tbody>
              {inOrder(peers).map((peer) => (
                <PathRow key={peer.peer_address} node={node} peer={peer} />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

/** `isShort`: beside the list, without what the path goes through. */
type RowProps = { node: Node; peer: Path; isShort?: boolean };

export function PathRow({ node, peer, isShort = false }: RowProps) {
  // Old paths have no colour. A path is old if the node that reported it is away, if its relays are, or if the peer that does
  // not answer is.
  const isOld = !isPresent(node) || (peer.probe === "broken" && peer.peer_away) || peer.relays_away;
  const by = byWords(peer);
  return (
    <tr>
      <td class="name">
        <PeerName peer={peer} />
      </td>
      <td class="line">
        <PathLine path={peer} isOld={isOld} isShort={isShort} />
      </td>
      <td class="num">
        <Trip peer={peer} isOld={isOld} />
      </td>
      {isShort ? (
        <td class="quiet num">
          <small>{peer.path === "none" ? "no tunnel" : peer.path}</small>
        </td>
      ) : (
        <td class="quiet">
          <small>
            <bdi>{by}</bdi>
            {isOld ? (
              <>
                , as reported <When at={peer.reported_at} />
              </>
            ) : null}
            {isBroken(peer) && !isOld && peer.peer !== null ? (
              <>
                {" "}
                <a href={whyPath(node, peer)}>Why?</a>
              </>
            ) : null}
          </small>
        </td>
      )}
    </tr>
  );
}

/** The page that answers why a node does not reach a peer. */
export const whyPath = (node: Pick<Node, "name">, { peer_name }: Path): string =>
  `${pathOf(currentSlug.value ?? "", "access")}?${new URLSearchParams({ from: node.name, to: peer_name ?? "" })}`;

const byWords = ({ path, relays, remote }: Path): string =>
  ({
    direct: `direct ${remote ?? ""}`.trim(),
    relayed: `relayed by ${relays.join(", ")}`,
    none: "no tunnel",
    unknown: "unknown",
  })[path];

function Trip({ peer, isOld }: { peer: Path; isOld: boolean }) {
  if (isBroken(peer)) return isOld ? "broken" : <State name="attention" word="broken" />;
  if (isOld || peer.rtt_ms === null) return "–";
  const loss = peer.loss === null || peer.loss === 0 ? "" : `, ${Math.round(peer.loss * 100)} % lost`;
  return `${peer.rtt_ms} ms${loss}`;
}

function PeerName({ peer: { peer, peer_name, peer_address } }: { peer: Path }) {
  const name = <bdi>{peer_name ?? peer_address}</bdi>;
  return peer === null ? name : <a href={pathOf(currentSlug.value ?? "", "nodes", peer)}>{name}</a>;
}
