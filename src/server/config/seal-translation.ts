// A sealed state in the words of the policy's comparison: each side of a rule is a group, and the parties that the side may
// name are its members.
//
// Closed nodes have tunnels with sealed nodes alone, which no rule says. So each rule becomes two: between parties that are
// sealed, and between parties that are not closed. Example: a rule lets the group `admins` into the group `db`. The node `ops`
// is open and in `admins`, `store` is closed and in `db`, and the control plane may give `admins` to anyone:
//
//   rules    sealed admins     -> sealed db            members  ops     sealed admins, not closed admins
//            not closed admins -> not closed db                 store   sealed db
//                                                               anyone  not closed admins
//
// By the first rule ops reaches store. Anyone does not: no rule has both.

import type { Rule } from "../../api/rules.ts";
import type { SealedRule, SealedState } from "../../protocol/seals/seal.ts";
import { selfGroup } from "../../protocol/users-groups.ts";
import type { Member } from "../policy/firewall.ts";
import type { Party } from "./seal-parties.ts";
import { standingsIn, type RuleSide } from "./seal-sides.ts";

type Translated = { rules: Rule[]; members: Member[] };

/** The group of `anyone`, whose engine lets all packets out and in. */
const unbound = "unbound";
/** The id of `anyone` among the members: they are numbered as the parties. */
export const anyoneId = 1;

/**
 * `state`: undefined before the first seal, where no party reaches any. `owners`: the groups of all owners. Works in slices, as the
 * comparison does.
 */
export function* translate(
  state: SealedState | undefined,
  parties: readonly Party[],
  owners: readonly string[],
): Generator<unknown, Translated> {
  /** By the text that stands for a side in the names of groups. */
  const sides = new Map<string, RuleSide>();
  const keyOf = (side: RuleSide) => {
    const key = JSON.stringify(side);
    sides.set(key, side);
    return key;
  };
  const rules = (state?.rules ?? []).flatMap((rule) =>
    sidesByOwner(rule, owners).flatMap(({ peer, target }): Rule[] =>
      ["sealed", "not closed"].map((which) => ({
        ...permittedBy(rule),
        peer: { group: `${which} ${keyOf(peer)}` },
        target: { group: `${which} ${keyOf(target)}` },
      })),
    ),
  );
  for (const direction of ["inbound", "outbound"] as const)
    rules.push({
      ...permittedBy({ direction, protocol: "any", ports: "any" }),
      peer: { any: true },
      target: { group: unbound },
    });
  const standingOf = standingsIn(state);
  const members: Member[] = [];
  for (const [at, party] of parties.entries()) {
    const { isSealed, isClosed, mayBe } = standingOf(party);
    const keys = [...sides].flatMap(([key, side]) => (mayBe(side) ? [key] : []));
    const groups = [
      ...(isSealed ? keys.map((key) => `sealed ${key}`) : []),
      ...(isClosed ? [] : keys.map((key) => `not closed ${key}`)),
      ...(party.kind === "anyone" && state !== undefined ? [unbound] : []),
    ];
    members.push({ id: anyoneId + at, name: party.label, ip: "", ip6: null, groups });
    yield;
  }
  return { rules, members };
}

/** What a rule of the comparison takes from a sealed one. Its id and description do not count there. */
const permittedBy = ({
  direction,
  protocol,
  ports,
}: Pick<SealedRule, "direction" | "protocol" | "ports">) => ({
  id: 0,
  direction,
  protocol,
  ports,
  description: "",
});

/** A rule about nodes of the same owner is one rule for each owner. */
function sidesByOwner(
  { peer, target }: SealedRule,
  owners: readonly string[],
): { peer: RuleSide; target: RuleSide }[] {
  const isSelf = "group" in peer && peer.group === selfGroup;
  if (!isSelf) return [{ peer: { as: "peer", side: peer }, target: { as: "target", side: target } }];
  return owners.map((owner) => ({
    peer: { as: "peer", side: { group: owner } },
    target: { as: "target", side: target, owner },
  }));
}
