// What Node's http does without a broker behind it: it parses the request as svcbroker does, and
// gives an answer as long as svcbroker's.
"use strict";

const http = require("node:http");

const ANSWER = '{"topic":"bench","eventId":"f3a7b2c1-1234567-123456","status":"SUCCESS"}';
const HEAD = {
    "Content-Type": "application/json;charset=UTF-8",
    "Content-Length": Buffer.byteLength(ANSWER),
};

function answer(response, form) {
    if (new URLSearchParams(form).get("topic") === "bench") {
        response.writeHead(200, HEAD);
        response.end(ANSWER);
    } else {
        response.writeHead(400);
        response.end();
    }
}

const server = http.createServer((request, response) => {
    if (request.method === "GET") {
        answer(response, request.url.slice(request.url.indexOf("?") + 1));
        return;
    }
    let body = "";
    request.on("data", (part) => (body += part));
    request.on("end", () => answer(response, body));
});
server.listen(0, "127.0.0.1", () => console.log("serves", server.address().port));
