// The floor under the check-in: a bare Bun.serve handler that parses and validates the same body, and does nothing. With
// a number it remembers so many nodes, without ever looking at them: what that alone costs is the runtime's.

import * as v from "valibot";
import { CheckinRequest } from "../../src/protocol.ts";

const remembered = new Map(
  Array.from({ length: Number(process.argv[2] ?? 0) }, (_, id) => [
    `Bearer ${id.toString().padStart(43, "x")}`,
    { id, orgId: 1, notAfter: id, certificateNotAfter: `${id}`, said: { id, at: 0, uptime: 0, applied: 0 } },
  ]),
);
const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  development: false,
  async fetch(request) {
    const body = v.safeParse(CheckinRequest, await request.json());
    if (!body.success) return Response.json({ error: "Bad Request" }, { status: 400 });
    return Response.json({ uptime: body.output.uptime, config_version: body.output.config_version ?? 0 });
  },
});
process.on("SIGTERM", () => {
  remembered.clear();
  void server.stop(true);
});
process.stdout.write(`${JSON.stringify({ url: server.url.origin })}\n`);
