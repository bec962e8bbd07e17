// What `agent update-run` and `agent drill-run` share: each carries out an order of the control plane, apart from the daemon.

import { brand } from "../../brand.ts";
import type { Client } from "../../node/contact/requests/client.ts";
import type { Organization } from "../../node/files/organizations.ts";
import type { Context, Implementation } from "../command.ts";
import { wordArg } from "../values.ts";

/** Attempts to get the lock: a run before may be about to end. */
const lockTries = 40;
const lockEveryMs = 250;

/** The arguments of a command that carries out an order. */
export const orderCommand = (word: string): Pick<Implementation, "args" | "examples"> => ({
  args: {
    ORG: wordArg("The slug of the organization whose order is carried out"),
  },
  examples: [`${brand.executable} ${word} acme`],
});

/**
 * Runs the work under a lock, a file `name` beside the state database. Does nothing if another process holds the lock for long:
 * that one finds the order in its file. One that is about to end is waited for.
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

/**
 * Returns what calls the control plane as this node. Throws bad_configuration if others than root can change the organization's
 * files, since the order is one of them.
 */
export async function asNode(organization: Organization, { system, log }: Context) {
  const { refuseForeignFiles } = await import("../../node/files/own-files.ts");
  refuseForeignFiles(organization.directory);
  const { connectOrganization } = await import("../../node/contact/requests/connection.ts");
  const withClient = connectOrganization(organization, system, log);
  return <T>(call: (client: Client, nodeId: number) => Promise<T>): Promise<T> =>
    withClient((client) => call(client, organization.config.node_id));
}

/** The peers that the node has a tunnel with. `loss`: of their probes, 0 to 1. */
export async function tunnelsOf(slug: string, { settings, system }: Context) {
  const { readPeers } = await import("../../daemon/asking/read-peers.ts");
  const { daemonAddress } = await import("../node/daemon-address.ts");
  const { peers } = await readPeers({ slug }, { address: daemonAddress(settings), settings }, system);
  return peers.flatMap(({ address, path, loss = 0 }) =>
    path === "direct" || path === "relayed" ? [{ address, isRelayed: path === "relayed", loss }] : [],
  );
}
