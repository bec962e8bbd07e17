// `register --replace`: a machine that lost its files takes the place of its own former node. Only an administrator can do
// that: the former node is revoked, and a new one gets its name and groups.

import { nodesApi } from "../../api/nodes.ts";
import { request } from "../../api/request.ts";
import { maxPageSize } from "../../api/values.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import { quoteWord } from "../../base/quote.ts";
import type { Node } from "../../protocol/node.ts";
import type { Client } from "../contact/requests/client.ts";

const reason = "its machine registers again";

/** Revokes the former node, and creates the new one. Throws conflict if another machine runs the former node now. */
export async function replaceNode(client: Client, slug: string, name: string, log: Log): Promise<void> {
  const [former] = await nodesNamed(client, slug, name);
  if (former === undefined)
    throw new AppError("failed", `The control plane does not list the node ${name} that has this name`);
  refuseOnline(former, slug);
  await client.request(request(nodesApi.revoke, { slug, id: former.id }, { reason }));
  log.info(`Revoked the former node ${name} (${former.ip_address})`);
  await createSuccessor(client, slug, former);
}

/** Continues a run that was killed after the revocation: without the new node, the groups of the former one would be lost. */
export async function continueReplacement(
  client: Client,
  slug: string,
  name: string,
  { log, now }: { log: Log; now: number },
): Promise<void> {
  if ((await nodesNamed(client, slug, name)).length > 0) return;
  const revokedAt = ({ revoked_at: at }: Node) => Date.parse(at ?? "");
  const former = (await nodesNamed(client, slug, name, { revoked: "true" }))
    .filter((node) => revokedAt(node) > now - interruptedMs)
    .toSorted((a, b) => revokedAt(a) - revokedAt(b))
    .at(-1);
  if (former === undefined) return;
  await createSuccessor(client, slug, former);
  log.info(`Going on with the replacement of ${name}, which was revoked at ${former.revoked_at ?? ""}`);
}

/** A revocation of this age may be that of a killed run. */
const interruptedMs = 3_600_000;

/** Creates a node with the name and groups of the former one, which the registration that follows becomes. */
async function createSuccessor(client: Client, slug: string, { name, groups }: Node): Promise<void> {
  await client.request(request(nodesApi.create, { slug }, { name, groups }));
}

/** The nodes with exactly this name. A search also finds parts of names, so a short name may have many pages. */
async function nodesNamed(
  client: Client,
  slug: string,
  name: string,
  filter: { revoked?: "true" } = {},
): Promise<Node[]> {
  const found: Node[] = [];
  for (let page = 1; ; page++) {
    const query = { search: name, page_size: String(maxPageSize), ...filter, page: String(page) };
    const { body = [] } = await client.request({
      ...request(nodesApi.list, { slug }, query),
      repeatable: true,
    });
    found.push(...body.filter((node) => node.name === name));
    if (body.length === 0) return found;
  }
}

/** Throws if the node is online: a machine that lost its files cannot check in as its former node, so it is another one. */
function refuseOnline({ name, online, last_checkin_at: last }: Node, slug: string): void {
  if (!online) return;
  throw new AppError("conflict", `The node ${name} is online: it reported at ${last ?? "an unknown time"}`, {
    hint:
      `If another machine has this name, choose another one with --node-name. If it is this machine's former node, ` +
      `try again three minutes after its last report, or revoke it first: ` +
      `\`${brand.executable} admin node revoke ${quoteWord(slug)} ${quoteWord(name)}\`.`,
  });
}
