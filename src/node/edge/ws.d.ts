// `ws` is a module of Bun. Its client takes a maximum of what it receives; the global one takes messages of 120 MB.

declare module "ws" {
  type Options = { maxPayload: number; perMessageDeflate: boolean; tls: object; proxy?: string };
  export const WebSocket: new (url: string, options: Options) => globalThis.WebSocket;
}
