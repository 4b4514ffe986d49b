//! Listings, from what is kept or from the store, and the list of buckets, which has one.

use crate::asked::Asked;
use crate::door::Door;
use crate::door::pass::{Passed, error_of, headers_of};
use crate::figures::count;
use crate::listings::Listing;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use s3s::{Body, S3Request, S3Response, S3Result, s3_error};
use std::sync::Arc;
use terrace_files::catalogue::Fault;

/// Names the query, whatever the order in which the client wrote it.
fn name_of(query: &[(String, String)]) -> String {
    let mut pairs: Vec<_> = query.iter().filter(|(name, _)| name != "x-id").collect();
    pairs.sort_unstable();
    // No name or value has a zero byte that stands for itself: the length tells them apart.
    pairs.iter().map(|(name, value)| format!("{}:{name}={}:{value}&", name.len(), value.len())).collect()
}

fn answer(status: u16, headers: HeaderMap, body: Bytes) -> S3Response<Body> {
    let mut response = S3Response::new(Body::from(body));
    response.status = StatusCode::from_u16(status).ok();
    response.headers = headers;
    response
}

impl Door {
    pub async fn list(
        self: &Arc<Door>,
        asked: Asked,
        prefix: String,
        request: S3Request<Body>,
    ) -> S3Result<S3Response<Body>> {
        let name = name_of(&asked.query);
        let flight;
        let are_kept = self.listings.lock().are_kept();
        let _turn = match are_kept {
            true => {
                if let Some(listing) = self.kept(&name) {
                    return Ok(listing);
                }
                flight = self.flights.of(&format!("?{name}").into());
                Some(flight.lock().await)
            }
            false => None,
        };
        // Another may have asked meanwhile.
        if let Some(listing) = self.kept(&name) {
            return Ok(listing);
        }
        let (began, writes) = (self.now(), self.listings.lock().writes());
        let passed = Passed::of(&request.method, None, asked.query, &request.headers)?;
        count(&self.figures.passed, 1);
        let door = self.clone();
        let found = tokio::task::spawn_blocking(move || door.ask(&passed)).await;
        match found.map_err(|_| s3_error!(InternalError, "the request was not made"))? {
            Ok(((status, headers), body)) => {
                let (headers, body) = (headers_of(headers), Bytes::from(body));
                count(&self.figures.sent_bytes, body.len() as u64);
                if status == 200 {
                    let mut kept = headers.clone();
                    ["date", "x-amz-request-id", "x-amz-id-2"]
                        .iter()
                        .for_each(|name| drop(kept.remove(*name)));
                    let listing = Arc::new(Listing { headers: kept, body: body.clone() });
                    self.listings.lock().keep(&name, &prefix, listing, began, writes);
                }
                Ok(answer(status, headers, body))
            }
            Err(fault @ Fault::Unavailable(_)) => {
                match self.listings.lock().find_in_outage(&name, self.now()) {
                    Some(listing) => {
                        count(&self.figures.served_in_outage, 1);
                        Ok(answer(200, listing.headers.clone(), listing.body.clone()))
                    }
                    None => Err(error_of(&fault)),
                }
            }
            Err(fault) => Err(error_of(&fault)),
        }
    }

    fn kept(&self, name: &str) -> Option<S3Response<Body>> {
        let listing = self.listings.lock().find(name, self.now())?;
        count(&self.figures.cached_listings, 1);
        count(&self.figures.sent_bytes, listing.body.len() as u64);
        Some(answer(200, listing.headers.clone(), listing.body.clone()))
    }

    /// The store's answer, without the buckets that are not served here.
    pub async fn buckets(self: &Arc<Door>, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let mut passed = Passed::of(&Method::GET, None, Vec::new(), &request.headers)?;
        passed.of_service = true;
        count(&self.figures.passed, 1);
        let door = self.clone();
        let found = tokio::task::spawn_blocking(move || door.ask(&passed)).await;
        let ((status, headers), body) = found
            .map_err(|_| s3_error!(InternalError, "the request was not made"))?
            .map_err(|fault| error_of(&fault))?;
        let mut headers = headers_of(headers);
        let body = match status {
            200 => {
                let text = String::from_utf8(body)
                    .map_err(|_| s3_error!(InternalError, "the store's list is not UTF-8"))?;
                only_bucket(&text, &self.passage.bucket_name).into_bytes()
            }
            _ => body,
        };
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        Ok(answer(status, headers, body.into()))
    }
}

fn only_bucket(xml: &str, bucket: &str) -> String {
    let name = format!("<Name>{bucket}</Name>");
    let mut out = String::new();
    let mut rest = xml;
    while let Some((before, behind)) = rest.split_once("<Bucket>") {
        out.push_str(before);
        let (one, after) = behind.split_once("</Bucket>").unwrap_or((behind, ""));
        if one.contains(&name) {
            out.push_str(&format!("<Bucket>{one}</Bucket>"));
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_a_query_does_not_matter_and_its_parts_cannot_be_mixed_up() {
        let of = |pairs: &[(&str, &str)]| {
            name_of(
                &pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            of(&[("prefix", "a"), ("list-type", "2")]),
            of(&[("list-type", "2"), ("x-id", "List"), ("prefix", "a")])
        );
        assert_ne!(of(&[("prefix", "a&6:marker=1:b")]), of(&[("prefix", "a"), ("marker", "b")]));
    }

    #[test]
    fn of_all_buckets_the_one_that_is_served_is_shown() {
        let xml = "<L><Owner/><Buckets><Bucket><Name>ab</Name></Bucket><Bucket><Name>a</Name><X/></Bucket></Buckets></L>";
        assert_eq!(
            only_bucket(xml, "a"),
            "<L><Owner/><Buckets><Bucket><Name>a</Name><X/></Bucket></Buckets></L>"
        );
        assert_eq!(only_bucket(xml, "c"), "<L><Owner/><Buckets></Buckets></L>");
    }
}
