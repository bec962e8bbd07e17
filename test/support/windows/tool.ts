// A Windows program for tests: `ask PIPE JSON` sends the daemon one request and prints its answer, `access PATH` prints the
// access list of a directory or pipe, `restrict PIPE GROUP` sets the daemon's access list on a pipe.

import { connectDaemon } from "../../../src/daemon/ipc/client.ts";
import { accessOf, restrictPipe } from "../../../src/platform/windows/access.ts";
import { realSystem } from "../../../src/base/system.ts";

const [verb, path = "", request = "{}"] = process.argv.slice(2);
if (verb === "ask") {
  const daemon = await connectDaemon({ kind: "pipe", name: path }, realSystem(), { patient: true });
  process.stdout.write(`${JSON.stringify(await daemon.request(JSON.parse(request)))}\n`);
  daemon.close();
} else if (verb === "restrict") {
  process.stdout.write(`${restrictPipe(path, request)}\n`);
} else {
  process.stdout.write(`${accessOf(path, "list") ?? "none"}\n`);
}
