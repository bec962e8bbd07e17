// The parts that make this machine a router, and that choose the routers of the networks that it uses.

import { openEchoSocket } from "../../platform/network/echo-socket.ts";
import { rememberVersions } from "../engine/engine.ts";
import { runningVersion } from "../engine/engine-in-use.ts";
import { applyChanges } from "../health/apply-changes.ts";
import { hasChoice, runFailover } from "../routing/failover.ts";
import { isRouter, runRouter, unmakeRouter } from "../routing/router.ts";
import type { EdgeContext, EdgePart, RunningPart } from "./part.ts";

export const routerPart: EdgePart = {
  name: "the router",
  needed: ({ directory }) => isRouter(directory),
  start: (context) =>
    running(
      (signal) => runRouter(depsOf(context), signal),
      () => unmakeRouter(context.directory, context.system),
    ),
};

export const failoverPart: EdgePart = {
  name: "the choice of routers",
  needed: ({ directory }) => hasChoice(directory),
  start(context) {
    const versionOf = rememberVersions(context.system);
    const version = async () => {
      const process = await context.control.process();
      return process === undefined ? undefined : runningVersion(process, undefined, versionOf);
    };
    return running((signal) =>
      runFailover(
        { ...depsOf(context), apply: (routes) => applyChanges(context, { routes }, { ...context, version }) },
        signal,
      ),
    );
  },
};

const depsOf = ({ directory, log, system }: EdgeContext) => ({
  directory,
  log,
  system,
  open: openEchoSocket,
  monotonic: system.monotonic,
});

function running(run: (signal: AbortSignal) => Promise<void>, undo?: () => Promise<void>): RunningPart {
  const over = new AbortController();
  const done = run(over.signal);
  return {
    async stop(isOver) {
      over.abort(new Error("Stopped"));
      await done;
      if (isOver) await undo?.();
    },
  };
}
