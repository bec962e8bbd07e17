// Exits as parts of the edge: the use of one, and being one. Loads their code only where it is needed.

import { staysClosed } from "../files/granted/exits.ts";
import { permissionsOrNone } from "../files/permissions.ts";
import { runPart, type EdgePart } from "./part.ts";

export const exitUser: EdgePart = {
  name: "the use of an exit",
  needed: ({ directory }) => permissionsOrNone(directory).exit !== undefined,
  async start(context) {
    const { leaveKernel } = await import("../exit/leave-exit.ts");
    const { useExit } = await import("../exit/use-exit.ts");
    const { openEchoSocket } = await import("../../platform/network/echo-socket.ts");
    const { slug, directory, log, system } = context;
    return runPart(
      (signal) => useExit(context, { ...context, openEcho: openEchoSocket }, signal),
      async () => {
        // The overlay was stopped, for example. With --strict the block stays.
        const reason = staysClosed(directory) ? undefined : await leaveKernel(context, system);
        if (reason !== undefined) log.error("Cannot leave the exit", { team: slug, reason });
      },
    );
  },
};

/** Needed if both the control plane and root of this machine made it an exit. */
export const exitServer: EdgePart = {
  name: "the exit",
  needed: ({ directory, config }) =>
    config.is_exit === true && permissionsOrNone(directory).advertise_exit === true,
  async start(context) {
    const { serveExit, stopServing } = await import("../exit/serve-exit.ts");
    return runPart(
      (signal) => serveExit(context, signal),
      () => stopServing(context),
    );
  },
};
