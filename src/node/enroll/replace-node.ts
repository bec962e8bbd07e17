// `register --replace`: a machine that lost its files takes the place of its own former node. Only an administrator can do
// that: the former node is revoked, and a new one gets its name and groups.

import * as v from "valibot";
import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import type { Log } from "../../log.ts";
import { quoteWord } from "../../plan.ts";
import { Node } from "../../protocol.ts";
import type { Client } from "../contact/client.ts";

const reason = "its machine registers again";

/** Makes room for the name. Throws conflict if another machine runs the node now. */
export async function replaceNode(client: Client, slug: string, name: string, log: Log): Promise<void> {
  const nodes = `/api/org/${encodeURIComponent(slug)}/nodes/`;
  const query = `?search=${encodeURIComponent(name)}&page_size=1000`;
  const { body = [] } = await client.request({
    path: nodes + query,
    schema: v.array(Node),
    repeatable: true,
  });
  const former = body.find((each) => each.name === name);
  if (former === undefined)
    throw new AppError("failed", `The control plane does not list the node ${name} that has this name`);
  refuseOnline(former, slug);
  await client.request({
    method: "DELETE",
    path: `${nodes}${former.id}/`,
    body: { reason },
    schema: v.unknown(),
  });
  log.info(`Revoked the former node ${name} (${former.ip_address})`);
  // The registration claims it, with its groups.
  await client.request({
    method: "POST",
    path: nodes,
    body: { name, groups: former.groups },
    schema: v.unknown(),
  });
}

/** A machine that lost its files cannot report under its former name. */
function refuseOnline({ name, online, last_checkin_at: last }: Node, slug: string): void {
  if (!online) return;
  throw new AppError("conflict", `The node ${name} is online: it reported at ${last ?? "an unknown time"}`, {
    hint:
      `If another machine has this name, choose another one with --node-name. If it is this machine's former node, ` +
      `try again three minutes after its last report, or revoke it first: ` +
      `\`${brand.executable} admin node revoke ${quoteWord(slug)} ${quoteWord(name)}\`.`,
  });
}
