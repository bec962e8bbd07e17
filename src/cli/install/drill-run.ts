// `agent drill-run`: this node's part in a drill. The daemon, or the check of server mode, starts it. A drill takes lighthouses,
// relays or the control plane away for some minutes, to show what their loss costs (docs/rollouts.md).

import type { Implementation } from "../command.ts";
import { asNode, orderCommand, runAlone, tunnelsOf } from "./order-run.ts";

export const command: Implementation = {
  notes:
    "It runs apart from the daemon, whose end must not end the report. If it is killed, too, a timeout in the kernel\n" +
    "ends the drill. Without an order of the control plane to take part in one, it does nothing.",
  ...orderCommand("drill-run"),
  async run(context) {
    const { settings, system, words, log, output } = context;
    const { openOrganization, parseSlug } = await import("../../node/files/organizations.ts");
    const slug = parseSlug(words[0] ?? "");
    const organization = openOrganization(settings.configRoot, slug);
    const { directory } = organization;
    if (settings.dryRun) return output.plan([]);
    const { runDrill } = await import("../../node/drill/run-drill.ts");
    const { openEchoSocket } = await import("../../platform/network/echo-socket.ts");
    await runAlone(`drill-${slug}.lock`, context, async () => {
      const send = await asNode(organization, context);
      await runDrill({
        slug,
        directory,
        tunnels: async () => (await tunnelsOf(slug, context)).map(({ address }) => address),
        report: (report) => send((client, nodeId) => client.reportDrill(slug, nodeId, report)),
        openEcho: openEchoSocket,
        system,
        log,
      });
    });
  },
};
