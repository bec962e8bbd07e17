// `agent drill-run`: this node's part in a drill. The daemon, or the check of server mode, starts it.

import { brand } from "../../brand.ts";
import type { Context, Implementation } from "../command.ts";

export const command: Implementation = {
  notes:
    "It runs apart from the daemon, whose end must not end the report. If it is killed, too, the kernel ends the drill.\n" +
    "Without an order of the control plane it does nothing.",
  args: {
    ORG: { type: "positional", description: "The slug of the organization whose order is carried out" },
  },
  examples: [`${brand.executable} drill-run acme`],
  async run(context) {
    const { settings, system, words, log, output } = context;
    const { openOrganization, parseSlug } = await import("../../node/files/organizations.ts");
    const slug = parseSlug(words[0] ?? "");
    const organization = openOrganization(settings.configRoot, slug);
    if (settings.dryRun) return output.plan([]);
    const { connectOrganization } = await import("../../node/contact/requests/connection.ts");
    const { runDrill } = await import("../../node/drill/run-drill.ts");
    const { openEchoSocket } = await import("../../platform/network/echo-socket.ts");
    const { lockFile } = await import("../../platform/file-lock.ts");
    const { makeDirectory } = await import("../../base/files.ts");
    const { dirname, join } = await import("node:path");
    const directory = dirname(settings.stateDb);
    // A machine without a daemon has no such directory yet.
    makeDirectory(directory, 0o755);
    const lock = lockFile(join(directory, `drill-${slug}.lock`));
    // Another one carries it out already.
    if (lock === undefined) return;
    try {
      const withClient = connectOrganization(organization, system, log);
      await runDrill({
        slug,
        directory: organization.directory,
        tunnels: () => tunnelsOf(slug, context),
        report: (report) =>
          withClient((client) => client.reportDrill(slug, organization.config.node_id, report)),
        openEcho: openEchoSocket,
        system,
        log,
      });
    } finally {
      lock.release();
    }
  },
};

async function tunnelsOf(slug: string, { settings, system }: Context): Promise<string[]> {
  const { readPeers } = await import("../../daemon/asking/read-peers.ts");
  const { daemonAddress } = await import("../node/daemon-address.ts");
  const { peers } = await readPeers(slug, undefined, { address: daemonAddress(settings), settings }, system);
  return peers.flatMap(({ address, path }) => (path === "direct" || path === "relayed" ? [address] : []));
}
