//! A browser that calls the router directly. It keeps cookies, does not follow redirects, and sends the headers that name the
//! site from which a request comes.

use std::collections::BTreeMap;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use tower::ServiceExt;

/// A browser of one person.
pub struct Browser {
    router: Router,
    /// The cookies, with their attributes.
    pub cookies: BTreeMap<String, String>,
    /// What a proxy in front of the pages adds to each request.
    pub bearer: Option<String>,
    /// The origin of the pages, as the browser has it.
    pub origin: String,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    /// The value of a hidden field; empty if there is none.
    pub fn field(&self, name: &str) -> String {
        let start = format!("name=\"{name}\" value=\"");
        let after = self.text.split(&start).nth(1).unwrap_or_default();
        after.split('"').next().unwrap_or_default().into()
    }

    pub fn location(&self) -> &str {
        self.headers.get("location").map_or("", |value| value.to_str().unwrap())
    }

    /// The page to which a page leads on its own.
    pub fn refresh(&self) -> String {
        let after = self.text.split("content=\"0; url=").nth(1).unwrap_or_default();
        after.split('"').next().unwrap_or_default().replace("&amp;", "&")
    }
}

impl Browser {
    pub fn new(router: &Router) -> Browser {
        let origin = "http://127.0.0.1:8083".into();
        Browser { router: router.clone(), cookies: BTreeMap::new(), bearer: None, origin }
    }

    pub async fn get(&mut self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], Body::empty()).await
    }

    /// Opens a page from a link on another site.
    pub async fn get_from_elsewhere(&mut self, path: &str) -> Answer {
        self.send(Method::GET, path, &[("sec-fetch-site", "cross-site")], Body::empty()).await
    }

    pub async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let origin = self.origin.clone();
        self.post_from(&origin, path, fields).await
    }

    pub async fn post_from(&mut self, origin: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        let escaped = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let pairs: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let headers = [("content-type", "application/x-www-form-urlencoded"), ("origin", origin)];
        self.send(Method::POST, path, &headers, Body::from(pairs.join("&"))).await
    }

    pub async fn send(&mut self, method: Method, path: &str, headers: &[(&str, &str)], body: Body) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("host", "127.0.0.1:8083");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.bearer {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let is_cross_site = headers.contains(&("sec-fetch-site", "cross-site"));
        for (name, value) in &self.cookies {
            let applies = (!value.contains("Path=/sign-in;") || path.starts_with("/sign-in"))
                && !(is_cross_site && value.contains("SameSite=Strict"));
            if applies {
                let value = value.split(';').next().unwrap();
                request = request.header("cookie", format!("{name}={value}"));
            }
        }
        let answer = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let (parts, body) = answer.into_parts();
        for cookie in parts.headers.get_all("set-cookie") {
            let (name, value) = cookie.to_str().unwrap().split_once('=').unwrap();
            if value.contains("Max-Age=0;") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.into(), value.into());
            }
        }
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Answer { status: parts.status, headers: parts.headers, text }
    }
}
