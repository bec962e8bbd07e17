// Exits as parts of the edge: the use of one, and being one. Loads their code only where it is needed.

import type { EdgePart } from "./part.ts";
import { permissionsOrNone } from "../files/permissions.ts";

export const exitUser: EdgePart = {
  name: "the use of an exit",
  needed: ({ directory }) => permissionsOrNone(directory).exit !== undefined,
  async start(context) {
    const { useExit } = await import("../exit/use-exit.ts");
    const { openEchoSocket } = await import("../../platform/network/echo-socket.ts");
    const end = new AbortController();
    const using = useExit(context, { ...context, openEcho: openEchoSocket }, end.signal);
    return {
      async stop(isOver) {
        end.abort(new Error("The edge ends"));
        await using;
        // The user stopped the overlay. `strict` stays closed until root says off.
        if (isOver && permissionsOrNone(context.directory).exit?.strict !== true) {
          const { leaveKernel } = await import("../exit/use-exit.ts");
          await leaveKernel(context, context.system);
        }
      },
    };
  },
};

/** Root's word, and the control plane's. */
export const exitServer: EdgePart = {
  name: "the exit",
  needed: ({ directory, config }) =>
    config.is_exit === true && permissionsOrNone(directory).advertise_exit === true,
  async start(context) {
    const { serveExit } = await import("../exit/serve-exit.ts");
    return serveExit(context);
  },
};
