// The log of one team, wherever it is kept: asked of the daemon, or of the journal. Prints nothing itself.

import { AppError } from "../errors.ts";
import { engineUnit } from "../platform/systemd.ts";
import { childEnvironment, type System } from "../system.ts";
import { connectDaemon } from "./ipc/client.ts";
import type { LocalAddress } from "./ipc/transport.ts";

export type LogWish = { team: string; mode: "desktop" | "server"; lines: number; follow: boolean };

/** Hands over the last lines, and, if that is wished, every line that comes, until the source ends. */
export async function followLog(
  wish: LogWish,
  address: LocalAddress,
  system: Pick<System, "sleep" | "env">,
  onLine: (line: string) => void,
): Promise<void> {
  if (wish.mode === "server") return followJournal(wish, system, onLine);
  const { team, lines, follow } = wish;
  const daemon = await connectDaemon(address, system, { patient: false });
  try {
    const answer = await daemon.request({ action: "logs", team, lines, follow });
    for (const line of answer.lines ?? []) onLine(line);
    if (follow) {
      await daemon.notices((notice) => {
        if (notice.event === "log") onLine(notice.line);
      });
      throw new AppError(
        "daemon_unreachable",
        "The daemon closed the connection: it has ended, or lines came too fast",
        {
          hint: "Ask for the log again.",
        },
      );
    }
  } finally {
    daemon.close();
  }
}

async function followJournal(
  { team, lines, follow }: LogWish,
  { env }: Pick<System, "env">,
  onLine: (line: string) => void,
): Promise<void> {
  const unit = engineUnit(team);
  const words = [
    "--output=cat",
    "--quiet",
    `--lines=${lines}`,
    `--unit=${unit}`,
    ...(follow ? ["--follow"] : []),
  ];
  const child = Bun.spawn(["/usr/bin/journalctl", ...words], {
    env: childEnvironment(env),
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
  });
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of child.stdout) {
    const parts = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = parts.pop() ?? "";
    parts.forEach(onLine);
  }
  await child.exited;
}
