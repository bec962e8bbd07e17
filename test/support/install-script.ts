// What tests of the install script share: the shells that it supports, and a server of releases that can also misbehave.

import { cannotInstall } from "./debian.ts";
import { busybox } from "./packages.ts";

export const shells: Record<string, string[]> = {
  dash: ["/usr/bin/dash"],
  busybox: [cannotInstall() === undefined ? busybox("busybox") : "/usr/bin/busybox", "ash"],
  mksh: ["/usr/bin/mksh"],
  posh: ["/usr/bin/posh"],
  bash: ["/usr/bin/bash", "--posix"],
};

const serveScript = `
const server = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch(request) {
  const { pathname } = new URL(request.url);
  if (pathname.startsWith("/endless/")) {
    // A stream without Content-Length. Counts the bytes that were read.
    let sent = 0;
    return new Response(new ReadableStream({
      pull(controller) {
        sent += 65536;
        require("node:fs").writeFileSync(process.argv[2], String(sent));
        if (sent > 64 * 1024 * 1024) controller.close();
        else controller.enqueue(new Uint8Array(65536).fill(10));
      },
    }));
  }
  if (pathname.startsWith("/dripping/")) {
    return new Response(new ReadableStream({
      async pull(controller) {
        await Bun.sleep(50);
        controller.enqueue(new Uint8Array(1));
      },
    }));
  }
  const file = Bun.file(process.argv[1] + pathname);
  return file.size > 0 ? new Response(file) : new Response("no", { status: 404 });
}});
console.log("http://127.0.0.1:" + server.port + "/");
`;

async function firstLine(stream: ReadableStream<Uint8Array>): Promise<string> {
  const { value } = await stream.getReader().read();
  return new TextDecoder().decode(value).trim();
}

/**
 * Serves a directory on loopback, in its own process because tests block while the script runs. `endless/` sends without
 * an end and notes in the file `sent` how much was read; `dripping/` sends a byte at a time.
 */
export async function serveReleases(directory: string, sent: string): Promise<Disposable & { url: string }> {
  const server = Bun.spawn([process.execPath, "-e", serveScript, directory, sent], {
    stdout: "pipe",
    stdin: "ignore",
  });
  const url = await firstLine(server.stdout);
  return { url, [Symbol.dispose]: () => server.kill() };
}
