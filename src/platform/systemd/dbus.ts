// A connection to the system bus: calls, and changes of a name's owner. Without a library, because systemd-resolved alone
// is called: docs/design/less-of-our-own.md has the figures beside `resolvectl`.

import { AppError } from "../../base/errors.ts";
import { decodeMessage, encodeCall, messageType, type Call, type Message } from "./dbus-wire.ts";

const systemBus = "/run/dbus/system_bus_socket";
const callMs = 3000;
const maxGreeting = 1000;

/** What calls to the bus itself go to, beside those to the services on it. */
const busItself = {
  destination: "org.freedesktop.DBus",
  path: "/org/freedesktop/DBus",
  interface: "org.freedesktop.DBus",
};

export type Bus = {
  /** The answer's values. Throws a BusError if the called service refuses, AppError if there is no answer. */
  call(call: Call): Promise<unknown[]>;
  /** Counts up at each change of the owner of `name` since `watchOwner`. */
  ownerChanges(): number;
  watchOwner(name: string): Promise<void>;
  readonly isClosed: boolean;
  close(): void;
};

/** A service's refusal: `org.freedesktop.resolve1.LinkBusy`. */
export class BusError extends AppError {
  readonly errorName: string;
  constructor(errorName: string, text: string) {
    super("failed", `${text === "" ? "no reason given" : text.slice(0, 200)} (${errorName.slice(0, 100)})`);
    this.errorName = errorName;
  }
}

/** Throws `failed` where there is no bus, or it does not admit this user. */
export async function openBus(path: string = systemBus): Promise<Bus> {
  const opened = Promise.withResolvers<void>();
  let changes = 0;
  let isClosed = false;
  const calls = makeCalls();
  const fail = (error: Error) => {
    isClosed = true;
    opened.reject(error);
    calls.fail(error);
  };
  const read = makeInput({
    onOpen(socket) {
      socket.write("BEGIN\r\n");
      opened.resolve();
    },
    onMessage(message) {
      if (message.type === messageType.signal && message.member === "NameOwnerChanged") changes++;
      else calls.take(message);
    },
  });
  const socket = await connect(path, {
    data(connection, bytes) {
      try {
        read(connection, bytes);
      } catch (error) {
        fail(error instanceof Error ? error : closedError());
        connection.terminate();
      }
    },
    close: () => fail(closedError()),
    error: () => fail(closedError()),
  });
  const send = (message: Buffer) => {
    if (socket.write(message) === message.length) return;
    // The bus would read the next message as the rest of this one.
    fail(new AppError("failed", "The system bus takes no calls"));
    socket.terminate();
  };
  const call = async (asked: Call): Promise<unknown[]> => {
    if (isClosed) throw closedError();
    return calls.call(asked, send);
  };
  try {
    // EXTERNAL: the kernel tells the bus the user id, which the text repeats in hexadecimal digits.
    const user = Buffer.from(String(process.getuid?.() ?? 0)).toString("hex");
    socket.write(`\0AUTH EXTERNAL ${user}\r\n`);
    const late = setTimeout(() => fail(new AppError("failed", "The system bus does not answer")), callMs);
    await opened.promise.finally(() => clearTimeout(late));
    await call({ ...busItself, member: "Hello" });
  } catch (error) {
    socket.terminate();
    throw error;
  }
  return {
    call,
    ownerChanges: () => changes,
    async watchOwner(name) {
      const rule = `type='signal',sender='${busItself.destination}',member='NameOwnerChanged',arg0='${name}'`;
      await call({ ...busItself, member: "AddMatch", signature: "s", body: [rule] });
    },
    get isClosed() {
      return isClosed;
    },
    close() {
      isClosed = true;
      socket.terminate();
    },
  };
}

const closedError = () => new AppError("failed", "The system bus closed the connection");

/** The calls that wait for their answers. */
function makeCalls() {
  const waiting = new Map<number, { resolve(body: unknown[]): void; reject(error: Error): void }>();
  let serial = 0;
  return {
    async call(asked: Call, send: (message: Buffer) => void): Promise<unknown[]> {
      serial++;
      const own = serial;
      const message = encodeCall(asked, own);
      const { promise, resolve, reject } = Promise.withResolvers<unknown[]>();
      waiting.set(own, { resolve, reject });
      const timer = setTimeout(
        () => reject(new AppError("failed", `${asked.destination} does not answer`)),
        callMs,
      );
      send(message);
      return promise.finally(() => {
        clearTimeout(timer);
        waiting.delete(own);
      });
    },
    take({ type, replySerial, body, errorName }: Message): void {
      const waiter = waiting.get(replySerial ?? 0);
      if (type === messageType.reply) waiter?.resolve(body);
      if (type !== messageType.error) return;
      const [text] = body;
      waiter?.reject(new BusError(errorName ?? "", typeof text === "string" ? text : ""));
    },
    fail(error: Error): void {
      for (const waiter of waiting.values()) waiter.reject(error);
    },
  };
}

type Handlers = { onOpen(socket: Bun.Socket): void; onMessage(message: Message): void };

/** Parses the bytes from the bus: first the line that accepts the user, then messages. */
function makeInput({ onOpen, onMessage }: Handlers): (socket: Bun.Socket, bytes: Uint8Array) => void {
  let input = Buffer.alloc(0);
  let isOpen = false;
  return (socket, bytes) => {
    input = Buffer.concat([input, bytes]);
    if (!isOpen) {
      const end = input.indexOf("\r\n");
      if (end < 0 && input.length < maxGreeting) return;
      if (end < 0 || !input.toString("latin1", 0, end).startsWith("OK "))
        throw new AppError("failed", "The system bus refuses this user");
      input = input.subarray(end + 2);
      isOpen = true;
      onOpen(socket);
    }
    for (let found = decodeMessage(input); found !== undefined; found = decodeMessage(input)) {
      // A copy: a part of the buffer would keep all of it in memory.
      input = Buffer.from(input.subarray(found.length));
      onMessage(found.message);
    }
  };
}

async function connect(path: string, socket: Bun.SocketHandler<undefined>): Promise<Bun.Socket> {
  try {
    return await Bun.connect({ unix: path, socket });
  } catch (error) {
    throw new AppError("failed", `There is no system bus at ${path}`, { cause: error });
  }
}
