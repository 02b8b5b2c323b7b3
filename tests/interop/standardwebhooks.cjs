// A receiver of webhooks that checks signatures with the library of Standard Webhooks:
// node standardwebhooks.cjs SECRET
"use strict";
const http = require("node:http");
const { Webhook } = require("standardwebhooks");

const webhook = new Webhook(process.argv[2]);

const server = http.createServer((request, response) => {
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => {
    try {
      const told = webhook.verify(Buffer.concat(pieces).toString("utf8"), request.headers);
      for (const each of Array.isArray(told) ? told : [told]) {
        const content = Buffer.from(each.event.content, "base64").toString("utf8");
        console.log(`verified ${request.headers["webhook-id"]} ${content}.`);
      }
      response.writeHead(204);
    } catch (error) {
      console.log(`refused: ${error.message}.`);
      response.writeHead(401);
    }
    response.end();
  });
});
server.listen(0, "127.0.0.1", () => console.log(`listening on ${server.address().port}.`));
