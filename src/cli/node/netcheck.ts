// `agent netcheck`: what the network between this machine and its organizations permits, one sentence for each check.

import { brand } from "../../brand.ts";
import type { Implementation } from "../command.ts";
import { anyOrgArg } from "./organizations.ts";

export const command: Implementation = {
  notes:
    "For each organization: what `status` found, whether UDP passes, which address and port each lighthouse sees (which\n" +
    "tells the kind of NAT), round trips to lighthouses and relays, the largest packet, the control plane, and the clock.\n" +
    "Exit status 1 if a check fails. Only root sees the mapping.",
  args: anyOrgArg,
  examples: [`${brand.executable} netcheck`, `${brand.executable} netcheck acme --json`],
  async run({ system, settings, words, output, log }) {
    const { chooseSlugs } = await import("../../daemon/asking/choose-slugs.ts");
    const { openOrganization } = await import("../../node/files/organizations.ts");
    const { openEchoSocket: open } = await import("../../platform/network/echo-socket.ts");
    const { examineControlPlane } = await import("../../node/doctor/control-plane.ts");
    const { netcheck } = await import("../../node/doctor/netcheck.ts");
    const { organizationDeps } = await import("../../node/contact/organization-deps.ts");
    const { renderChecks } = await import("../../node/doctor/check.ts");
    const { observe } = await import("../../daemon/asking/doctor-checks.ts");
    const { daemonAddress } = await import("./daemon-address.ts");
    const slugs = chooseSlugs(settings.configRoot, words[0]);
    // One question to the daemon for all organizations.
    const observed = observe({ ...settings, address: daemonAddress(settings) }, system, words[0]);
    const checksByOrganization = await Promise.all(
      slugs.map((slug) => {
        const organization = openOrganization(settings.configRoot, slug);
        // `command` names the holder of a lock. No lock is taken here.
        const { engine } = organizationDeps(organization, "", { settings, system, log });
        const controlPlane = () => examineControlPlane(organization, { system, log });
        // Undefined if this user may not ask the daemon.
        const probedStatus = async () => (await observed)?.teams.find(({ team }) => team === slug);
        return netcheck(organization, { system, open, engine, probedStatus, controlPlane });
      }),
    );
    const checks = checksByOrganization.flat();
    const isOk = checks.every(({ verdict }) => verdict !== "fail");
    output.result({ ok: isOk, checks }, renderChecks(checks));
    return isOk ? 0 : 1;
  },
};
