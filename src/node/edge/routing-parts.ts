// The parts that make this machine a router, and that choose the routers of the networks that it uses. Loads their code only
// where it is needed.

import type { RouteChoice } from "../files/config/route-choice.ts";
import { hasSeveralRouters } from "../files/config/read-config.ts";
import { hasRouterWork } from "../routing/offers.ts";
import { runPart, type EdgeContext, type EdgePart } from "./part.ts";

export const routerPart: EdgePart = {
  name: "the router",
  needed: ({ directory }) => hasRouterWork(directory),
  async start(context) {
    const { runRouter, unmakeRouter } = await import("../routing/router.ts");
    const deps = await depsOf(context);
    return runPart(
      (signal) => runRouter(deps, signal),
      () => unmakeRouter(context.directory, context.system),
    );
  },
};

export const failoverPart: EdgePart = {
  name: "the choice of routers",
  needed: ({ directory }) => hasSeveralRouters(directory),
  async start(context) {
    const { rememberVersions } = await import("../engine/engine.ts");
    const { runningVersion } = await import("../engine/engine-in-use.ts");
    const { applyChanges } = await import("../health/apply-changes.ts");
    const { runFailover } = await import("../routing/failover.ts");
    const versionOf = rememberVersions(context.system);
    const version = async () => {
      const process = await context.control.process();
      // `undefined`: no file to compare the process with, so the program that runs is asked.
      return process === undefined ? undefined : runningVersion(process, undefined, versionOf);
    };
    const deps = {
      ...(await depsOf(context)),
      apply: (routes: RouteChoice) => applyChanges(context, { routes }, { ...context, version }),
    };
    return runPart((signal) => runFailover(deps, signal));
  },
};

async function depsOf({ directory, log, system }: EdgeContext) {
  const { openEchoSocket } = await import("../../platform/network/echo-socket.ts");
  return { directory, log, system, open: openEchoSocket, monotonic: system.monotonic };
}
