// Networks behind nodes: which may be announced. A wrong one would take traffic of every node of the organization.

import { AppError } from "../../errors.ts";
import { networksOverlap, parseNetwork } from "../../ip.ts";
import type { IssuingOrg } from "../certificates/issue.ts";
import { numberOf, textOf, textsOf, type Reader } from "../store/database.ts";

/** Throws validation_failed or conflict, with the network that cannot be. */
export async function checkSubnets(
  reader: Pick<Reader, "all">,
  org: IssuingOrg,
  subnets: readonly string[],
  nodeId?: number,
): Promise<void> {
  const refuse = (sentence: string) =>
    new AppError("validation_failed", sentence, { errors: { subnets: [sentence] } });
  for (const [at, text] of subnets.entries()) {
    const subnet = parseNetwork(text);
    if (subnet === undefined) throw refuse(`${text} is no network.`);
    if (subnet.prefix === 0) throw refuse(`${text} would take all traffic of every node.`);
    if (subnets.indexOf(text) !== at) throw refuse(`${text} stands there twice.`);
    if (subnet.family === 6 && (org.network6 === null || org.certificateVersion === 1)) {
      throw refuse(`${text} needs certificates of version 2 and an IPv6 network of the organization.`);
    }
    for (const own of [org.network, org.network6 ?? ""].map(parseNetwork)) {
      if (own !== undefined && networksOverlap(own, subnet))
        throw refuse(`${text} overlaps the overlay's own network ${own.text}.`);
    }
  }
  if (subnets.length === 0) return;
  const rivals = await reader.all(
    "SELECT id, name, subnets FROM nodes WHERE org_id = $1 AND state <> 'revoked' AND subnets <> '[]'",
    [org.id],
  );
  for (const rival of rivals) {
    const twice = textsOf(rival, "subnets").find((each) =>
      subnets.includes(parseNetwork(each)?.text ?? each),
    );
    if (twice !== undefined && numberOf(rival, "id") !== nodeId)
      throw new AppError("conflict", `${twice} is behind the node ${textOf(rival, "name")} already.`);
  }
}
