// The floor under the check-in: a bare Bun.serve handler that parses and validates the same body, and does nothing.

import * as v from "valibot";
import { CheckinRequest } from "../../src/protocol/checkin.ts";

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
process.on("SIGTERM", () => void server.stop(true));
process.stdout.write(`${JSON.stringify({ url: server.url.origin })}\n`);
