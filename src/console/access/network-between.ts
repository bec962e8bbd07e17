// May one node reach another? The traffic in question, the facts beside the rules (which node is away or has old rules, and the
// last reported path), and the conclusion. Pure.

import type { Node } from "../../protocol/node.ts";
import { configurationOf, stateOf, type StateName } from "../nodes/states.ts";
import type { ReportedPath } from "../node/peer-path.ts";
import { spaced } from "./class-words.ts";

/** How a node reaches a peer, as GET nodes/{id}/peers/ shows it. */
export type Path = Omit<ReportedPath, "loss">;

export type LinkedNode = Pick<
  Node,
  | "id"
  | "name"
  | "state"
  | "online"
  | "phone"
  | "applied_config_version"
  | "config_version"
  | "last_checkin_at"
  | "revoked_at"
>;

/** `at`: since when, or when the node was seen last (RFC 3339). The page writes it after the words. */
export type Fact = { state: StateName; about: string; words: string; at: string | null };

/** Whether a node checks in: not one that is revoked, waits, or is a phone. */
const reports = ({ state, phone }: LinkedNode): boolean => state === "active" && phone == null;

/** The state of a node and since when; what it has applied. */
export function nodeFacts(node: LinkedNode): Fact[] {
  const { name: about, online, last_checkin_at, revoked_at } = node;
  const [state, word] = stateOf(node);
  if (!reports(node)) return [{ state, about, words: word, at: revoked_at }];
  // As if it were online: that it is away is a fact of its own.
  const { words, isBehind } = configurationOf({ ...node, online: true });
  return [
    { state, about, words: online ? "online, last check-in" : "away, last check-in", at: last_checkin_at },
    {
      state: isBehind ? "limited" : "online",
      about,
      words: isBehind
        ? `${words}: rules that were saved since are not in force on it`
        : "has applied the newest rules",
      at: null,
    },
  ];
}

/** The path as `from` reported it last. A node reports changes only, so the report may be old and still hold. */
export function pathFact(from: LinkedNode, to: LinkedNode, path: Path | undefined): Fact | undefined {
  if (path === undefined) return undefined;
  const fact = (state: StateName, words: string): Fact => {
    return {
      state: from.online ? state : "away",
      about: `${from.name} to ${to.name}`,
      words: `${words}${from.online ? "" : ", when it was last here"}; last change`,
      at: path.reported_at,
    };
  };
  if (path.probe === "broken") return fact("attention", `path broken: ${to.name} does not answer`);
  if (path.relays_away) return fact("limited", `path relayed by ${path.relays.join(", ")}: away now`);
  const trip = path.rtt_ms === null ? "" : ` (${path.rtt_ms} ms)`;
  if (path.path === "direct") return fact("online", `path direct${trip}`);
  if (path.path === "relayed") return fact("relayed", `path relayed by ${path.relays.join(", ")}${trip}`);
  return fact("away", "no tunnel");
}

/** The rules' answer to a question. `what`: the traffic that they allow or do not allow, as a sentence names it. */
type Ruled = { isAllowed: boolean; what: string };

const protocols = ["any", "tcp", "udp", "icmp"] as const;
/** What a question is about. Without a port: all of the protocol. */
export type Traffic = { protocol: (typeof protocols)[number]; port: string };

/** From the parameters of the page's address, which may hold anything. `named`: the protocol. */
export function trafficFrom(named: string, port: string): Traffic {
  const known = protocols.find((each) => each === named) ?? "any";
  // Only tcp and udp have ports, and most questions with a port are about tcp.
  const protocol = known === "any" && port !== "" ? "tcp" : known;
  return { protocol, port: protocol === "icmp" ? "" : port };
}

/**
 * From what was typed: "tcp 443", "443", "udp", "icmp", "anything". Other text is taken for a port, which the page then calls
 * wrong.
 */
export function trafficIn(text: string): Traffic {
  const [first = "", ...rest] = text
    .trim()
    .toLowerCase()
    .split(/[\s/]+/);
  if (first === "anything") return trafficFrom("any", rest.join(" "));
  const isProtocol = protocols.some((each) => each === first);
  return isProtocol ? trafficFrom(first, rest.join(" ")) : trafficFrom("", [first, ...rest].join(" "));
}

/** The reverse: "tcp 443"; "" for anything. */
export const trafficText = ({ protocol, port }: Traffic): string =>
  protocol === "any" ? "" : [protocol, port].filter(Boolean).join(" ");

/** The traffic in question, as commands write it: "tcp/443", "icmp"; empty: all of a protocol, or everything. */
export function packetOf({ protocol, port }: Traffic): string {
  if (protocol === "icmp") return protocol;
  return port === "" ? "" : `${protocol}/${port}`;
}

/** `permitted`: all that the rules permit between the two. Without a port, the question is about all of its protocol. */
export function ruledOn(
  question: Traffic,
  { allowed, permitted }: { allowed: boolean; permitted: readonly string[] },
): Ruled {
  const { protocol } = question;
  if (packetOf(question) !== "") return { isAllowed: allowed, what: "it" };
  const ofProtocol = permitted.filter(
    (each) => protocol === "any" || each === "any" || each.split("/")[0] === protocol,
  );
  if (ofProtocol.includes("any")) return { isAllowed: true, what: "everything" };
  if (ofProtocol.length > 0) return { isAllowed: true, what: spaced(ofProtocol.join(", ")) };
  return { isAllowed: false, what: protocol === "any" ? "anything" : protocol };
}

type Asked = Ruled & {
  from: LinkedNode;
  to: LinkedNode;
  /** The path, as each end reports it. */
  paths: readonly Path[];
};

/** The first obstacle, in one sentence: an ended node, then the rules, a node that is away, the path, an old configuration. */
export function conclusionOf({ isAllowed, what, from, to, paths }: Asked): [StateName, string] {
  const both = [from, to];
  const ended = both.find(({ state }) => state !== "active");
  if (ended !== undefined)
    return ["attention", `No: ${ended.name} is ${ended.state === "revoked" ? "revoked" : "not registered"}.`];
  if (!isAllowed) return ["attention", `No: the rules do not allow ${what}.`];
  const away = both.filter((node) => reports(node) && !node.online).map(({ name }) => name);
  if (away.length > 0)
    return [
      "attention",
      `Not now: the rules allow ${what}, but ${away.join(" and ")} ${away.length === 1 ? "is" : "are"} away.`,
    ];
  if (paths.some(({ probe }) => probe === "broken"))
    return ["attention", `Not now: the rules allow ${what}, but the path between them is broken.`];
  if (paths.some(({ relays_away }) => relays_away))
    return ["limited", `Perhaps: the rules allow ${what}, but the relay of the path between them is away.`];
  const behind = both.find((node) => configurationOf(node).isBehind);
  if (behind !== undefined)
    return [
      "limited",
      `Perhaps: the rules allow ${what}, but ${behind.name} has not applied the newest ones.`,
    ];
  return ["online", `Yes: the rules allow ${what}, and nothing is known to stand in the way.`];
}
