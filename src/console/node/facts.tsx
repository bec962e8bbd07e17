// What a node is: its facts, its certificate, and what changed last.

import { organizationsApi } from "../../api/organizations.ts";
import { apiPath } from "../../api/endpoint.ts";
import { defaultOverlayPort } from "../../api/values.ts";
import { useEffect } from "preact/hooks";
import { describeDataPlane } from "../../engine/data-plane-words.ts";
import { groupsByOwner } from "../../protocol/shown-groups.ts";
import { hostLabels } from "../../protocol/host-labels.ts";
import type { Node } from "../../protocol/node.ts";
import { isAbout } from "../activity/actor.ts";
import { thingsOf } from "../activity/event-filter.ts";
import { useLog } from "../activity/log.ts";
import { me, currentSlug } from "../contact/me.ts";
import { useMemberNames } from "../activity/member-names.ts";
import { configurationOf, updateEngine, vulnerabilitiesOf } from "../nodes/states.ts";
import { useDueNode } from "../nodes/own-nodes.tsx";
import { relayText } from "../needs/relayed-traffic.ts";
import { useRelays } from "../needs/use-needs.ts";
import { useResource } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { RecentEvents } from "../activity/recent-events.tsx";
import { Copy, Facts, type Fact, State, When } from "../ui/parts.tsx";
import { Tag } from "../ui/tag.tsx";
import { Aliases } from "./names.tsx";
import { numberText } from "../words/numbers.ts";

/** Gives the full names of a name inside the network, as text: "db-1.acme.internal, db-1.example.org". */
export function useFullNames(): (name: string) => string {
  const slug = currentSlug.value ?? "";
  const { data } = useResource(apiPath(organizationsApi.retrieve, { slug }));
  return (name) =>
    [`${slug}.internal`, data?.name_suffix ?? ""]
      .filter(Boolean)
      .map((domain) => `${name}.${domain}`)
      .join(", ");
}

const none = <span class="faint">none</span>;

function rolesAndPlace(node: Node): string {
  const { is_lighthouse, is_relay, is_name_server, public_ip, external_port } = node;
  const roles = [
    is_lighthouse && "lighthouse",
    is_relay && "relay",
    is_name_server === true && "name server",
    public_ip !== null && `reached at ${public_ip}:${external_port ?? defaultOverlayPort}`,
  ];
  return roles.filter(Boolean).join(", ");
}

const systemOf = ({ platform, agent_version: version }: Node): string =>
  // Joined with `+`: a test would take a template that begins with "agent" for a command.
  [platform, version && "agent " + version].filter(Boolean).join(", ");

/** The version of the engine; if it has known vulnerabilities, these and the command that updates it. */
function engineFact(node: Node): Fact[1] {
  const holes = vulnerabilitiesOf(node);
  if (holes === "") return node.overlay_version ?? "unknown";
  return (
    <>
      <State name="attention" word={node.overlay_version} /> {holes} <code>{updateEngine}</code>
      <Copy text={updateEngine} />
    </>
  );
}

/** The configuration that it has; on its page, one that is not the newest leads to the differences. */
function configurationFact(node: Node, isShort: boolean): Fact[1] {
  const { words, isBehind } = configurationOf(node);
  if (isBehind && !isShort) return <a href="#configuration">{words}</a>;
  return node.state === "active" ? words : <span class="faint">{words}</span>;
}

/** A fact; none if its value is "", false or absent. */
const factOf = (title: string, value: Fact[1]): readonly Fact[] => (value ? [[title, value]] : []);

/** `isShort`: beside the list. */
export function NodeFacts({ node, isShort = false }: { node: Node; isShort?: boolean }) {
  const slug = currentSlug.value ?? "";
  const { owner_id: owner } = node;
  const names = useMemberNames(slug);
  const fullNames = useFullNames();
  const byOwner = groupsByOwner(node);
  const due = useDueNode(slug, node);
  const relay = useRelays().find((each) => each.node === node.id);
  const addresses = [node.ip_address, node.ip_address6].filter((each) => each !== null);
  const isRevoked = node.state === "revoked";
  const identity: readonly Fact[] = [
    [
      "Address",
      addresses.map((each) => (
        <>
          <code>{each}</code>
          <Copy text={each} label={`Copy ${each}`} />
        </>
      )),
    ],
    ...factOf(
      "Names",
      !isRevoked && hostLabels(node.name).map((name) => <bdi key={name}>{fullNames(name)}</bdi>),
    ),
    ...factOf("Aliases", !isRevoked && <Aliases node={node} full={fullNames} />),
    ["Groups", node.groups.length === 0 ? none : node.groups.map((text) => <Tag key={text} text={text} />)],
    ...factOf("By its owner", byOwner.join(", ")),
    ["Owner", owner == null ? "the organization" : (names.get(owner) ?? `user ${owner}`)],
  ];
  const condition: readonly Fact[] = [
    ["Engine", engineFact(node)],
    ["Configuration", configurationFact(node, isShort)],
    node.phone == null
      ? ["Seen", <When at={node.last_checkin_at} />]
      : [
          "File made",
          <>
            <When at={node.phone.imported_at} />
            {owner === me.value?.id && node.state === "active" ? (
              <a href={pathOf(slug, "phones")}>Import it again</a>
            ) : null}
          </>,
        ],
  ];
  /** Only on its page. */
  const more: readonly Fact[] = [
    ["Roles", rolesAndPlace(node) || none],
    ["Networks", node.subnets.join(", ") || none],
    ["Exit for", node.exit_groups?.join(", ") || none],
    ...factOf("Relayed", relay && relayText(relay)),
    ["System", systemOf(node) || "unknown"],
    ...factOf("Packets", node.data_plane && describeDataPlane(node.data_plane)),
    ...factOf(
      "Confirmation",
      due && (
        <span>
          Its user confirms it by <When at={due.until} />, or it is revoked
        </span>
      ),
    ),
    ["Added", <When at={node.created_at} />],
  ];
  return <Facts facts={isShort ? [...identity, ...condition] : [...identity, ...condition, ...more]} />;
}

/** The log is read back this far for something about the node: one or two requests more. */
const readBackTo = 2000;

/** The newest events about a node, one line each. */
export function Changed({ node, count }: { node: Node; count: number }) {
  const slug = currentSlug.value ?? "";
  // As many events in one request as the API sends.
  const { events, isAll, isReading, older } = useLog(slug, 1000);
  const names = useMemberNames(slug);
  const found = events.filter((event) => isAbout(event, `node/${node.id}`)).slice(0, count);
  const isSearching = found.length === 0 && !isAll && events.length > 0 && events.length < readBackTo;
  useEffect(() => {
    if (isSearching && !isReading) older();
  }, [isSearching, isReading]);
  const things = new Map([...thingsOf(events), [`node/${node.id}`, node.name] as const]);
  if (found.length > 0) return <RecentEvents events={found} names={names} things={things} />;
  let words = `Nothing among the last ${numberText(events.length)} events of the organization.`;
  if (isReading || isSearching) words = "Reading.";
  if (isAll) words = "Nothing.";
  return <p class="in quiet">{words}</p>;
}

/** The page that has all events about a node. */
export const changesPath = (node: Pick<Node, "id">): string =>
  `${pathOf(currentSlug.value ?? "", "activity")}?subject=node/${node.id}`;
