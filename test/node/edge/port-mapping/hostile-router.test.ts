// A router may answer anything. What is not an answer of the protocols is ignored, nothing is asked of another host, and the
// work for it is bounded.

import { describe, expect, test } from "bun:test";
import { createServer, type Socket } from "node:net";
import {
  pcpRequest,
  pmpRequest,
  readPcp,
  readPmp,
  readPmpAddress,
  type Wanted,
} from "../../../../src/node/edge/port-mapping/datagrams.ts";
import { mapByUpnp, whyUnusable } from "../../../../src/node/edge/port-mapping/ask-router.ts";
import {
  controlIn,
  externalAddress,
  keptMapping,
  placeIn,
  tagIn,
  type Control,
} from "../../../../src/node/edge/port-mapping/upnp.ts";
import { makeRandom } from "../../../support/random.ts";

const gateway = "192.168.1.1";
const wanted: Wanted = {
  client: "192.168.1.20",
  nonce: Uint8Array.from({ length: 12 }, (_, at) => at + 1),
  port: 4242,
  external: 4243,
  lifetimeS: 600,
};

/** The answer of RFC 6887, section 11.1, to the request. */
function pcpAnswer(change: (bytes: Uint8Array) => void = () => undefined): Uint8Array {
  const bytes = pcpRequest(wanted);
  bytes[1] = 0x81;
  bytes.fill(0, 8, 24);
  bytes.set([0, 0, 0, 77], 8);
  bytes.set([198, 51, 100, 7], 56);
  change(bytes);
  return bytes;
}

const pmpAnswer = Uint8Array.from([0, 0x81, 0, 0, 0, 0, 0, 9, 0x10, 0x92, 0x10, 0x93, 0, 0, 2, 0x58]);

describe("datagrams", () => {
  test("requests and answers are those of the RFCs", () => {
    const request = pcpRequest(wanted);
    expect(Buffer.from(request).toString("hex")).toBe(
      [
        ["02010000", "00000258", "00000000000000000000ffffc0a80114"],
        ["0102030405060708090a0b0c", "11000000", "10921093", "00000000000000000000ffff00000000"],
      ]
        .flat()
        .join(""),
    );
    expect(readPcp(pcpAnswer(), wanted)).toEqual({ host: "198.51.100.7", external: 4243, lifetimeS: 600 });
    expect(Buffer.from(pmpRequest(wanted)).toString("hex")).toBe("000100001092109300000258");
    expect(readPmp(pmpAnswer, wanted)).toEqual({ external: 4243, lifetimeS: 600 });
    const address = Uint8Array.from([0, 0x80, 0, 0, 0, 0, 0, 9, 198, 51, 100, 7]);
    expect(readPmpAddress(address)).toEqual({ host: "198.51.100.7" });
  });

  test("answers to another question, or of another family, are not taken", () => {
    expect(
      readPcp(
        pcpAnswer((bytes) => (bytes[24] = 99)),
        wanted,
      ),
    ).toBeUndefined();
    expect(
      readPcp(
        pcpAnswer((bytes) => (bytes[36] = 6)),
        wanted,
      ),
    ).toBeUndefined();
    expect(
      readPcp(
        pcpAnswer((bytes) => (bytes[41] = 0)),
        wanted,
      ),
    ).toBeUndefined();
    expect(
      readPcp(
        pcpAnswer((bytes) => (bytes[1] = 1)),
        wanted,
      ),
    ).toBeUndefined();
    expect(readPcp(pcpAnswer().subarray(0, 59), wanted)).toBeUndefined();
    expect(readPmp(pmpAnswer.subarray(0, 15), wanted)).toBeUndefined();
    expect(readPmp(pmpAnswer, { ...wanted, port: 4000 })).toBeUndefined();
    const refused = { refused: expect.any(String) };
    expect(
      readPcp(
        pcpAnswer((bytes) => (bytes[44] = 0x20)),
        wanted,
      ),
    ).toEqual(refused);
    expect(
      readPcp(
        pcpAnswer((bytes) => (bytes[3] = 2)),
        wanted,
      ),
    ).toEqual(refused);
    expect(readPcp(Uint8Array.from([0, 0x81, 0, 1, 0, 0, 0, 9]), wanted)).toEqual(refused);
    expect(readPmp(pmpAnswer.with(3, 2), wanted)).toEqual(refused);
    // The end of a mapping is not a mapping for ever.
    expect(
      readPcp(
        pcpAnswer((bytes) => bytes.fill(0, 4, 8)),
        wanted,
      ),
    ).toEqual(refused);
    expect(readPmp(pmpAnswer.slice().fill(0, 12), wanted)).toEqual(refused);
    const ended = { external: 4243, lifetimeS: 0 };
    expect(readPmp(pmpAnswer.slice().fill(0, 12), { ...wanted, lifetimeS: 0 })).toEqual(ended);
  });

  test("50,000 random changes and cuts of answers never throw, and never give an address that is not in them", () => {
    const random = makeRandom(41);
    const upTo = (most: number) => Math.floor(random() * most);
    for (let round = 0; round < 50_000; round++) {
      const bytes = (round % 2 === 0 ? pcpAnswer() : pmpAnswer).slice(0, upTo(70));
      for (let changes = upTo(4); changes > 0; changes--) bytes[upTo(bytes.length)] = upTo(256);
      const pcp = readPcp(bytes, wanted);
      if (pcp !== undefined && "host" in pcp) expect(pcp.host).toBe([...bytes.subarray(56, 60)].join("."));
      const address = readPmpAddress(bytes);
      if (address !== undefined && "host" in address)
        expect(address.host).toBe([...bytes.subarray(8, 12)].join("."));
      readPmp(bytes, wanted);
    }
  });
});

test("only an address of the internet is told to others", () => {
  const overlays = ["10.77.0.0/16", "44.0.0.0/16"];
  expect(whyUnusable("198.51.100.7", { overlays }, 4242)).toBeUndefined();
  const refused = [
    "10.0.0.1",
    "192.168.1.1",
    "172.16.9.9",
    "100.64.0.7",
    "127.0.0.1",
    "0.0.0.0",
    "169.254.1.1",
    "224.0.0.1",
    "255.255.255.255",
    "240.0.0.1",
    "44.0.3.4",
    "2001:db8::1",
    "::ffff:198.51.100.7",
    "router.example",
    "",
    "1",
  ];
  for (const host of refused) expect(whyUnusable(host, { overlays })).toBeDefined();
  expect(whyUnusable("198.51.100.7", { overlays }, 0)).toBeDefined();
  expect(whyUnusable("198.51.100.7", { overlays }, 65_536)).toBeDefined();
});

describe("UPnP", () => {
  const found = (location: string) =>
    placeIn(`HTTP/1.1 200 OK\r\nST: x\r\nLOCATION: ${location}\r\n\r\n`, gateway)?.href;

  test("a description lies at the router itself", () => {
    expect(found("http://192.168.1.1:5000/rootDesc.xml")).toBe("http://192.168.1.1:5000/rootDesc.xml");
    for (const location of [
      "http://192.168.1.2/a",
      "http://example.org/",
      "https://192.168.1.1/",
      "file:///etc/passwd",
      "http://root@192.168.1.1/",
      "http://192.168.1.1@example.org/",
      "http://192.168.1.1.example.org/",
      `http://192.168.1.1/${"a".repeat(300)}`,
      "//",
      "",
    ])
      expect(found(location)).toBeUndefined();
  });

  const service = (type: string, control: string) =>
    `<service><serviceType>${type}</serviceType><controlURL>${control}</controlURL></service>`;
  const wan = "urn:schemas-upnp-org:service:WANIPConnection:1";
  const place = "http://192.168.1.1:5000/rootDesc.xml";

  test("a service is asked at the router itself, and entities mean nothing", () => {
    const control = (xml: string) => controlIn(xml, place, gateway);
    expect(control(service("urn:x:Layer3Forwarding:1", "/l3") + service(wan, "/ctl/IPConn"))).toEqual({
      port: 5000,
      path: "/ctl/IPConn",
      service: wan,
    });
    expect(control(service(wan, "http://192.168.1.9/ctl"))).toBeUndefined();
    expect(control(service(`${wan}&quot;`, "/ctl"))).toBeUndefined();
    expect(
      control(`<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>${service(wan, "&x;")}`),
    ).toBeUndefined();
    expect(control(service(wan, "/a\r\nHost: b"))).toBeUndefined();
  });

  test("2,000 random texts of 64 KB are read without a failure", () => {
    const random = makeRandom(7);
    const parts = [
      "<service>",
      "<serviceType>",
      wan,
      "</",
      "<controlURL",
      ">",
      " ",
      "http://192.168.1.1",
      "&x;",
      "<a:",
      "\0",
    ];
    for (let round = 0; round < 2000; round++) {
      let text = "";
      const longest = round % 100 === 0 ? 65_536 : 500;
      while (text.length < longest) text += parts[Math.floor(random() * parts.length)];
      expect([undefined, 80, 5000]).toContain(controlIn(text, place, gateway)?.port);
      expect(tagIn(text, "errorCode")).toBeUndefined();
    }
  });

  async function answeredBy<T>(serve: (socket: Socket) => void, ask: (control: Control) => Promise<T>) {
    const server = createServer((socket) => {
      socket.on("error", () => socket.destroy());
      socket.once("data", () => serve(socket));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    try {
      return await ask({ port, path: "/ctl", service: wan });
    } finally {
      server.close();
    }
  }
  const addressBy = (serve: (socket: Socket) => void) =>
    answeredBy(serve, (control) => externalAddress("127.0.0.1", control));

  test("a mapping is kept only where the router names this client and port", async () => {
    const entry = (client: string, port: string, lease: string) => {
      const body = `<NewInternalPort>${port}</NewInternalPort><NewInternalClient>${client}</NewInternalClient><NewLeaseDuration>${lease}</NewLeaseDuration>`;
      return answeredBy(
        (socket) => socket.end(`HTTP/1.1 200 OK\r\n\r\n<a>${body}</a>`),
        (control) => keptMapping("127.0.0.1", control, wanted),
      );
    };
    expect(await entry(wanted.client, "4242", "700")).toBe(700);
    expect(await entry(wanted.client, "4242", "0")).toBe(0);
    expect(await entry("192.168.1.21", "4242", "700")).toBeUndefined();
    expect(await entry(wanted.client, "4244", "700")).toBeUndefined();
    expect(await entry(wanted.client, "4242", "-1")).toBeUndefined();
    expect(await entry(wanted.client, "4242", "soon")).toBeUndefined();
  });

  /** A router that answers requests to map a port with this fault, and knows this mapping. */
  async function renewedAt(fault: number, entry: string | undefined) {
    const faultOf = (code: number) => `HTTP/1.1 500 No\r\n\r\n<a><errorCode>${code}</errorCode></a>`;
    const answers = {
      GetExternalIPAddress: "<NewExternalIPAddress>198.51.100.7</NewExternalIPAddress>",
      GetSpecificPortMappingEntry: entry,
    };
    const server = createServer((socket) => {
      socket.on("error", () => socket.destroy());
      socket.once("data", (bytes) => {
        const action = /#(\w+)"/.exec(bytes.toString())?.[1];
        const values = Object.entries(answers).find(([name]) => name === action)?.[1];
        const refused = faultOf(action === "AddPortMapping" ? fault : 714);
        socket.end(values === undefined ? refused : `HTTP/1.1 200 OK\r\n\r\n<a>${values}</a>`);
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    const control = { port, path: "/ctl", service: wan };
    const { nonce, external } = wanted;
    const held = { by: "UPnP", port: 4242, external, nonce, control } as const;
    const question = { gateway: "127.0.0.1", port: 4242, nonce, overlays: [], held };
    try {
      return await mapByUpnp(wanted.client, question, control);
    } finally {
      server.close();
    }
  }

  test("a mapping that the router keeps outlives a failed renewal, and a refusal ends it", async () => {
    const entryOf = (client: string) =>
      `<NewInternalPort>4242</NewInternalPort><NewInternalClient>${client}</NewInternalClient><NewLeaseDuration>0</NewLeaseDuration>`;
    const kept = { by: "UPnP", at: "198.51.100.7:4243", external: 4243, lifetimeS: 0 };
    for (const fault of [501, 718])
      expect(await renewedAt(fault, entryOf(wanted.client))).toMatchObject(kept);
    expect(await renewedAt(501, undefined)).toEqual({ refused: "UPnP error 501", isUncertain: true });
    // The port is another machine's by now, and so are all others.
    expect(await renewedAt(718, entryOf("192.168.1.21"))).toEqual({ refused: "it has no free ports" });
    expect(await renewedAt(606, entryOf(wanted.client))).toEqual({
      refused: "it does not allow port mappings",
    });
  });

  test("an answer is taken, a redirect is not followed, and endless or missing answers end", async () => {
    const body = "<a><NewExternalIPAddress>198.51.100.7</NewExternalIPAddress></a>";
    const whole = `HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    // The connection stays open.
    const taken = await addressBy((socket) => socket.write(whole));
    expect("values" in taken && tagIn(taken.values, "NewExternalIPAddress")).toBe("198.51.100.7");
    const moved = await addressBy((socket) =>
      socket.end("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"),
    );
    expect(moved).toEqual({ fault: 302 });
    const fault = "HTTP/1.1 500 No\r\n\r\n<s:Fault><errorCode>718</errorCode></s:Fault>";
    expect(await addressBy((socket) => socket.end(fault))).toEqual({ fault: 718 });
    const endless = addressBy((socket) => {
      const timer = setInterval(() => socket.write("a".repeat(16_384)), 1);
      socket.on("close", () => clearInterval(timer));
    });
    expect(endless).rejects.toThrow("more than 65536 bytes");
    expect(addressBy(() => undefined)).rejects.toThrow("did not answer in time");
    await Promise.allSettled([endless]);
  });
});
