// What `agent update-run` and `agent drill-run` share: each carries out an order of the control plane, apart from the daemon.

import { brand } from "../../brand.ts";
import type { Client } from "../../node/contact/requests/client.ts";
import type { Organization } from "../../node/files/organizations.ts";
import type { Context, Implementation } from "../command.ts";

/** Attempts to get the lock: a run before may be about to end. */
const lockTries = 40;
const lockEveryMs = 250;

export const orderRun = (word: string): Pick<Implementation, "args" | "examples"> => ({
  args: {
    ORG: { type: "positional", description: "The slug of the organization whose order is carried out" },
  },
  examples: [`${brand.executable} ${word} acme`],
});

/**
 * One with this lock at a time. It lies beside the state database. Another one that runs finds the order in the file, unless it
 * is about to end: then this one waits for it.
 */
export async function runAlone(
  name: string,
  { settings, system }: Context,
  work: () => Promise<void>,
): Promise<void> {
  const { makeDirectory } = await import("../../base/files.ts");
  const { lockFile } = await import("../../platform/file-lock.ts");
  const { dirname, join } = await import("node:path");
  const path = join(dirname(settings.stateDb), name);
  // A machine without a daemon has no such directory yet.
  makeDirectory(dirname(path), 0o755);
  let lock = lockFile(path);
  for (let tries = 0; lock === undefined && tries < lockTries; tries++) {
    await system.sleep(lockEveryMs);
    lock = lockFile(path);
  }
  if (lock === undefined) return;
  try {
    await work();
  } finally {
    lock.release();
  }
}

/** Calls the control plane as this node. Throws bad_configuration if others than root can change its files: the order is one. */
export async function asNode(organization: Organization, { system, log }: Context) {
  const { refuseForeignFiles } = await import("../../node/files/own-files.ts");
  refuseForeignFiles(organization.directory);
  const { connectOrganization } = await import("../../node/contact/requests/connection.ts");
  const withClient = connectOrganization(organization, system, log);
  return <T>(call: (client: Client, nodeId: number) => Promise<T>): Promise<T> =>
    withClient((client) => call(client, organization.config.node_id));
}

/** The peers that the node has a tunnel with. */
export async function tunnelsOf(slug: string, { settings, system }: Context) {
  const { readPeers } = await import("../../daemon/asking/read-peers.ts");
  const { daemonAddress } = await import("../node/daemon-address.ts");
  const { peers } = await readPeers(slug, undefined, { address: daemonAddress(settings), settings }, system);
  return peers.flatMap(({ address, path, loss = 0 }) =>
    path === "direct" || path === "relayed" ? [{ address, isRelayed: path === "relayed", loss }] : [],
  );
}
