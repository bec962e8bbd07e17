// Reads the log of one organization's engine: from the daemon in mode desktop, from the journal in mode server. It must not
// print.

import { defer } from "../../base/defer.ts";
import { dirname } from "node:path";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";
import { requireOwnUnits } from "../../platform/config-root.ts";
import { engineUnit, journalCommand } from "../../platform/systemd/systemd.ts";
import { childEnvironment, type System } from "../../base/system.ts";
import { connectDaemon } from "../ipc/client.ts";
import type { LocalAddress } from "../ipc/transport.ts";

type LogRequest = {
  slug: string;
  directory: string;
  mode: "desktop" | "server";
  lines: number;
  follow: boolean;
};

/** Calls `onLine` for the last lines and, with `follow`, for every new line until the source ends. */
export async function followLog(
  request: LogRequest,
  address: LocalAddress,
  system: Pick<System, "sleep" | "env">,
  onLine: (line: string) => void,
): Promise<void> {
  if (request.mode === "server") return followJournal(request, system, onLine);
  const { slug, lines, follow } = request;
  const daemon = await connectDaemon(address, system, { patient: false });
  using _ = defer(() => daemon.close());
  const answer = await daemon.request({ action: "logs", team: slug, lines, follow });
  for (const line of answer.lines ?? []) onLine(line);
  if (follow) {
    await daemon.notices((notice) => {
      if (notice.event === "log") onLine(notice.line);
    });
    throw new AppError(
      "daemon_unreachable",
      "The daemon closed the connection: it has ended, or lines came too fast",
      { hint: `Run it again: \`${brand.executable} logs -f ${quoteWord(slug)}\`.` },
    );
  }
}

async function followJournal(
  { slug, directory, lines, follow }: LogRequest,
  { env }: Pick<System, "env">,
  onLine: (line: string) => void,
): Promise<void> {
  requireOwnUnits(dirname(directory));
  const unit = engineUnit(slug);
  const argv = journalCommand(unit, `--lines=${lines}`, ...(follow ? ["--follow"] : []));
  const child = Bun.spawn(argv, {
    env: childEnvironment(env),
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
  });
  const decoder = new TextDecoder();
  let unfinishedLine = "";
  for await (const chunk of child.stdout) {
    const parts = (unfinishedLine + decoder.decode(chunk, { stream: true })).split("\n");
    unfinishedLine = parts.pop() ?? "";
    parts.forEach(onLine);
  }
  await child.exited;
}
